//! `segue-bench transport-drive`: the client of `atp-latency`.

use segue_bench::transport::{Drive, drive};

use super::{Outcome, text};

pub(crate) fn run(options: &Drive) -> Outcome {
    let driven = drive(options).map_err(text)?;
    println!("{}", serde_json::to_string(&driven).map_err(text)?);
    Ok(())
}
