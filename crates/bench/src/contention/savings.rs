//! What priorities save, and what they could.
//!
//! A foreground without priorities takes longer beside a background than alone. No order of
//! sending makes it faster than alone, so the difference is the most that priorities can save.

use super::ALONE;
use super::cell::Cell;
use super::paper;
use super::part::Part;
use super::table2::Told;
use crate::spread::{shown, times};
use segue_bed::peer::system::System;

const ABOUT: &str = "\
    Of the foreground's time without priorities, in percent, what it takes less with them. At \
    most: what it takes less alone, because no order of sending makes it faster than that. Below \
    0: more. Paper: at 1,024 KB/s.";

/// How soon a write is with the server, and the two configurations that differ by the order.
const PAIRS: [(&str, [&str; 2]); 2] = [
    ("close", ["close-priorities", "close-uniform"]),
    ("async", ["async-priorities", "async-uniform"]),
];

pub(super) fn section(told: &Told<'_>) -> String {
    let heading: String =
        PAIRS.iter().map(|(name, _)| format!(" {name} | at most | paper |")).collect();
    let mut text = format!(
        "\n## What priorities save\n\n{ABOUT}\n\n| test | KB/s |{heading}\n|---|--:|{}\n",
        "--:|".repeat(3 * PAIRS.len())
    );
    for &(test, start) in &told.tests {
        for &rate in &told.rates {
            let mut line = String::new();
            let mut mark = "";
            for (_, [with, without]) in PAIRS {
                let cell = |name| {
                    Some(Cell { test, start, system: System::named(name)?, rate: Some(rate) })
                };
                let spread = |name| told.spread(cell(name)?, Part::Foreground);
                let base = spread(without);
                let alone = cell(with).and_then(|cell| {
                    mark = cell.mark();
                    told.alone(cell, Part::Foreground, ALONE, Some(rate))
                });
                let saved = saved(times(spread(with).as_ref(), base.as_ref()));
                let most = self::saved(times(alone.as_ref(), base.as_ref()));
                let figure = |name| paper::figure(test.name, Part::Foreground, name);
                let there = figure(with).zip(figure(without));
                let there = there.filter(|_| rate == paper::RATE);
                let paper = self::saved(there.map(|((with, _), (without, _))| with / without));
                line += &format!(" {saved} | {most} | {paper} |");
            }
            text += &format!("| {}{mark} | {rate} |{line}\n", test.name);
        }
    }
    text
}

/// What is left out if so much is left.
fn saved(share: Option<f64>) -> String {
    // Plus 0, or what rounds to none would have a sign.
    shown(share.map(|share| format!("{} %", (100.0 * (1.0 - share)).round() + 0.0)))
}
