//! One measurement as a line, the table of all, and the curves.

use std::fmt;

use serde::Serialize;

use super::{Application, Figures};
use crate::measurement::{self, failures, figures_of, firsts, kinds, runs_and_scale};
use crate::plot::lines::{Chart, Curve, Look};
use crate::record::Context;
use crate::spread::{Spread, caption, median};
use crate::transport::modal::{MODES, Rule};

/// What modeless adaptation is to use of the link, and how much more than modal it is to send.
const UTILIZATION: f64 = 0.97;
const TIMES_MODAL: f64 = 1.17;
/// Rules that the table shows.
const RULES_SHOWN: usize = 8;

/// One application once.
pub(super) type Measurement = measurement::Measurement<Kind, Figures>;

/// Of applications, as the results name it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Kind {
    application: &'static str,
    rule: Option<Rule>,
}

impl From<Application> for Kind {
    fn from(application: Application) -> Kind {
        Kind { application: application.name(), rule: application.rule() }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.application)
    }
}

/// For whoever waits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { message_bytes, link_bytes, utilization, .. } = self;
        let (message_mb, link_mb) = (mb(*message_bytes), mb(*link_bytes));
        write!(f, "{message_mb:.1} MB of messages, {link_mb:.1} MB on the link, ")?;
        write!(f, "{utilization:.3} of it")
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// An application's repeats: medians, and the range of the share.
struct Row {
    kind: Kind,
    message_bytes: u64,
    link_bytes: u64,
    capacity_bytes: u64,
    /// Of the link, that was used.
    shares: Spread,
}

fn row(kind: Kind, measured: &[Measurement]) -> Option<Row> {
    let figures = figures_of(measured, kind);
    Some(Row {
        kind,
        message_bytes: median(figures.clone().map(|one| one.message_bytes))?,
        link_bytes: median(figures.clone().map(|one| one.link_bytes))?,
        capacity_bytes: figures.clone().next()?.capacity_bytes,
        shares: Spread::over(figures.clone().map(|one| one.utilization))?,
    })
}

/// The table, what it comes to, and the rules that were tried.
pub(super) fn markdown(
    context: &Context,
    measured: &[Measurement],
    swept: &[(Rule, f64)],
) -> String {
    let (runs, scale) = runs_and_scale(measured);
    let kinds = kinds(measured).into_iter();
    let rows: Vec<Row> = kinds.filter_map(|kind| row(kind, measured)).collect();
    let mut text = format!(
        "{}{} Over {scale} of the trace. {ABOUT}\n\n{HEADING}",
        context.heading(),
        caption(runs)
    );
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text.push_str(&verdict(&rows));
    text.push_str(&failures(measured));
    text.push_str(&format!("\n## Rules of the modal application\n\n{SWEEP}\n\n{SWEEP_HEADING}"));
    for (rule, bytes) in shown(swept) {
        let modes = modes(rule);
        let (margin, patience, mb) = (rule.margin, rule.patience_s, bytes / f64::from(1 << 20));
        text.push_str(&format!("| {modes} | {margin} | {patience} | {mb:.1} |\n"));
    }
    text
}

const ABOUT: &str = "\
    Four classes of messages (FETCH, STORE-ATTR, STORE-DATA, PREFETCH) go up without end over a \
    link whose rate follows `crates/bench/traces/mfs-fig2.txt`; 40 ms round trip, 128 KB of queue. \
    Modeless: each class always has one message of 64 KB under way. Modal: in a mode, only its \
    classes are produced, at its rate; the modes' rates and the rule are the best of the sweep \
    below, which knows the trace. Modal, even: evenly spaced modes. Both go by the same transport. \
    On the link: bytes that it carried up, with all headers; what the queue dropped is not in it. \
    The paper has 48.5 MB modeless and 41.5 MB modal: 1.17 times. 1 MB = 2^20 bytes.";

const HEADING: &str = "\
    | application | modes, KB/s | messages, MB | on the link, MB | link's capacity, MB \
    | used |\n|---|---|--:|--:|--:|--:|\n";

const SWEEP: &str = "\
    What each rule would send if the link were a pipe and the bandwidth known at once, for 165 \
    sets of modes, four margins and five patiences. The lowest mode has what the link takes when \
    it is slowest. Margin: a mode is chosen if the bandwidth \
    is so many times its rate. Patience: seconds without a queue after which the next mode is \
    tried. The best ones; the best with each margin and patience; the median.";

const SWEEP_HEADING: &str =
    "| modes, KB/s | margin | patience, s | messages, MB |\n|---|--:|--:|--:|\n";

/// The best rules, the best of each margin and of each patience, and the one in the middle.
fn shown(swept: &[(Rule, f64)]) -> Vec<&(Rule, f64)> {
    let mut shown: Vec<&(Rule, f64)> = swept.iter().take(RULES_SHOWN).collect();
    for one in swept {
        let is_known = shown.iter().any(|(rule, _)| rule.margin == one.0.margin)
            && shown.iter().any(|(rule, _)| rule.patience_s == one.0.patience_s);
        if !is_known {
            shown.push(one);
        }
    }
    shown.extend(swept.get(swept.len() / 2));
    shown
}

fn modes(rule: &Rule) -> String {
    rule.rates_kb.map(|rate| rate.to_string()).join(", ")
}

fn line(row: &Row) -> String {
    format!(
        "| {} | {} | {:.1} | {:.1} | {:.1} | {} |\n",
        row.kind,
        row.kind.rule.as_ref().map_or("-".into(), modes),
        mb(row.message_bytes),
        mb(row.link_bytes),
        mb(row.capacity_bytes),
        row.shares.cell(3),
    )
}

fn verdict(rows: &[Row]) -> String {
    let Some((modeless, modal)) = rows.split_first() else { return String::new() };
    let reached = |is: bool| if is { "reached" } else { "missed" };
    let mut text = format!(
        "\n* modeless uses {:.3} of the link; asked for: {UTILIZATION}, {}.\n",
        modeless.shares.median(),
        reached(modeless.shares.median() >= UTILIZATION)
    );
    for row in modal {
        let times = modeless.message_bytes as f64 / row.message_bytes.max(1) as f64;
        text.push_str(&format!(
            "* modeless sends {times:.2} times what {} does; asked for: {TIMES_MODAL}, {}.\n",
            row.kind,
            reached(times >= TIMES_MODAL)
        ));
    }
    text
}

/// Two charts for each application's first success: the link, its use, and modes or classes; and
/// the share that was used, because use and link lie on each other.
pub(super) fn charts(measured: &[Measurement]) -> Vec<Chart> {
    firsts(measured).into_iter().flat_map(charts_of).collect()
}

fn charts_of((kind, figures): (Kind, &Figures)) -> [Chart; 2] {
    // As in the paper, the most urgent class is the lowest line; modes stand at their rates.
    let most = figures.rate_kb.iter().copied().fold(0.0, f64::max);
    let height = |mode: usize| match &kind.rule {
        Some(rule) => rule.rate(mode) / 1024.0,
        None => most * (mode + 1) as f64 / (4 * MODES) as f64,
    };
    let known = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
    let modes: Vec<Option<f64>> = figures.mode.iter().map(|mode| mode.map(height)).collect();
    let name = if kind.rule.is_some() { "mode" } else { "most urgent class sent" };
    let curves = vec![
        Curve::steps("true bandwidth", Look::Grey, &known(&figures.rate_kb)),
        Curve::steps("used", Look::Blue, &known(&figures.used_kb)),
        Curve::steps(name, Look::Dark, &modes),
    ];
    let share = Curve::share("used of the bandwidth", &figures.used_kb, &figures.rate_kb);
    let below =
        Chart::beside(format!("{kind}, share of the link"), ["seconds", "share"], vec![share]);
    let target = (format!("{UTILIZATION} in all, asked of modeless"), UTILIZATION);
    [
        Chart::new(kind.to_string(), ["seconds", "KB/s"], curves),
        Chart { levels: vec![target], ..below },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(application: Application, message_bytes: u64, utilization: f64) -> Measurement {
        let figures = Figures {
            capacity_bytes: 100 << 20,
            link_bytes: 97 << 20,
            message_bytes,
            utilization,
            rate_kb: vec![100.0, 100.0],
            used_kb: vec![90.0, 95.0],
            mode: vec![Some(0), None],
            class_kb: vec![[1.0; MODES]; 2],
        };
        Measurement::new(application.into(), 1, 1.0, Ok(figures))
    }

    #[test]
    fn the_table_says_how_many_times_modal_it_is() {
        let rule = Rule { rates_kb: [1, 2, 3, 4], margin: 1.0, patience_s: 1 };
        let measured = [
            measurement(Application::Modeless, 90 << 20, 0.98),
            measurement(Application::Modal(rule), 75 << 20, 0.83),
        ];
        let text = markdown(&Context::of_test(), &measured, &[(rule, 1048576.0)]);
        assert!(text.contains("| modal | 1, 2, 3, 4 | 75.0 | 97.0 | 100.0 | 0.830 |"), "{text}");
        assert!(text.contains("1.20 times what modal does; asked for: 1.17, reached"), "{text}");
        assert!(text.contains("uses 0.980 of the link; asked for: 0.97, reached"), "{text}");
        assert!(text.contains("| 1, 2, 3, 4 | 1 | 1 | 1.0 |"), "{text}");
        assert_eq!(charts(&measured).len(), 4);
    }
}
