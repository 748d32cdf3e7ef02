//! How the trace of `train` was made.
//!
//! A ride is a row of sections. In each second rate and round trip are those of the second before,
//! times something between 0.75 and 1.3 by chance, and within the section's bounds.

use std::fmt::Write;

use segue_bed::Rng;

const SEED: u64 = 1;
const LOSS_PERCENT: u32 = 3;

/// What the train passes, with bounds in KB/s and in milliseconds.
#[derive(Clone, Copy)]
enum Section {
    Open([f64; 2], [f64; 2]),
    Tunnel,
}

const STATION: Section = Section::Open([768.0, 1280.0], [20.0, 40.0]);
const SUBURB: Section = Section::Open([320.0, 768.0], [40.0, 100.0]);
const COUNTRY: Section = Section::Open([64.0, 384.0], [80.0, 300.0]);

/// The sections, in seconds.
const RIDE: [(Section, u32); 15] = [
    (STATION, 20),
    (SUBURB, 25),
    (COUNTRY, 30),
    (Section::Tunnel, 4),
    (COUNTRY, 25),
    (Section::Tunnel, 9),
    (COUNTRY, 30),
    (SUBURB, 15),
    (STATION, 20),
    (SUBURB, 15),
    (COUNTRY, 25),
    (Section::Tunnel, 28),
    (COUNTRY, 30),
    (SUBURB, 14),
    (STATION, 10),
];

/// The lines of the trace.
fn lines() -> String {
    let mut rng = Rng::new(SEED);
    let (mut rate, mut rtt, mut second) = (1024.0_f64, 30.0_f64, 0);
    let mut text = String::new();
    for (section, seconds) in RIDE {
        match section {
            Section::Tunnel => {
                writeln!(text, "{second} 0 {rtt:.0} {LOSS_PERCENT}").unwrap();
                second += seconds;
            }
            Section::Open(rates, rtts) => {
                for _ in 0..seconds {
                    rate = walk(rate, rates, &mut rng);
                    rtt = walk(rtt, rtts, &mut rng);
                    writeln!(text, "{second} {rate:.0} {rtt:.0} {LOSS_PERCENT}").unwrap();
                    second += 1;
                }
            }
        }
    }
    writeln!(text, "{second} end").unwrap();
    text
}

fn walk(value: f64, [least, most]: [f64; 2], rng: &mut Rng) -> f64 {
    (value * (0.75 + rng.unit() * 0.55)).clamp(least, most)
}

#[test]
fn the_trace_is_what_the_model_makes() {
    let rows = super::TRACE.lines().filter(|line| !line.starts_with('#'));
    let file: String = rows.map(|line| format!("{line}\n")).collect();
    assert_eq!(file, lines());
}
