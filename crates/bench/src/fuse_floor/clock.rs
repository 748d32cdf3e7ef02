//! Rates and times of loops.

use std::time::Instant;

use segue_bed::Result;

/// How many of `count` things a second `work` does.
pub(super) fn rate(count: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    // A clock that did not move would make it infinite.
    Ok(count as f64 / start.elapsed().as_secs_f64().max(1e-9))
}

/// Microseconds that `call` takes, the mean of `count` calls. Those that are to be alone in it
/// are made ready by `before` and cleaned up by `after`, outside of the time.
pub(super) fn micros<T>(
    count: u32,
    mut before: impl FnMut(u32) -> Result<()>,
    mut call: impl FnMut(u32) -> Result<T>,
    mut after: impl FnMut(u32, T) -> Result<()>,
) -> Result<f64> {
    let mut total = 0.0;
    for number in 0..count {
        before(number)?;
        let start = Instant::now();
        let made = call(number)?;
        total += start.elapsed().as_secs_f64();
        after(number, made)?;
    }
    Ok(total * 1e6 / f64::from(count))
}

/// As `micros`, of calls that need nothing before or after.
pub(super) fn micros_of(count: u32, call: impl FnMut(u32) -> Result<()>) -> Result<f64> {
    micros(count, |_| Ok(()), call, |_, ()| Ok(()))
}
