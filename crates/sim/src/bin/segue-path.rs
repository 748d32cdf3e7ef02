//! `segue-path`: what the transport's law makes of links of many kinds, in simulated time.
//!
//! For each link a sender that is never idle, and small questions beside it: how long those take
//! (milliseconds), how long the queue is, and what part of the link carries messages.

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use segue_sim::path::{Control, DrawnLink, Flow, LaneSpec, PACKET, Scenario, percentile, run};

/// Runs a sender and questions over simulated links, and prints a table.
#[derive(Parser, Debug)]
struct Arguments {
    /// Bytes a second
    #[arg(long, value_delimiter = ',', default_value = "1229,8192,65536,262144,1048576,10485760")]
    rates: Vec<u64>,
    /// Milliseconds of a round trip
    #[arg(long, value_delimiter = ',', default_value = "1,40,200")]
    rtts: Vec<u64>,
    /// Milliseconds of the queue before the link
    #[arg(long, value_delimiter = ',', default_value = "400")]
    queues: Vec<u64>,
    /// Packets of a thousand that are lost by chance
    #[arg(long, default_value_t = 0)]
    loss: u64,
    /// What holds the sender back
    #[arg(long, value_parser = control, default_value = "segue")]
    control: Control,
    /// How long each takes; the first quarter is not measured
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Decides which packets are lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draws so many links, the first by the seed, and says on which the law's promises hold, or
    /// with `beside` the shares
    #[arg(long)]
    drawn: Option<u64>,
    /// Puts another sender into the same queue, and prints the first one's share of what both carry
    #[arg(long)]
    beside: bool,
    /// What holds the other sender back
    #[arg(long, value_parser = control, default_value = "cubic")]
    other: Control,
    /// Also prints when each late question of a table's link was answered, the start included
    #[arg(long)]
    late: bool,
    /// With `drawn`: the links that miss a promise only
    #[arg(long)]
    misses: bool,
}

fn control(name: &str) -> Result<Control, String> {
    match name {
        "segue" => Ok(Control::Segue),
        "background" => Ok(Control::Background),
        "cubic" => Ok(Control::Cubic),
        "bbr" => Ok(Control::Bbr),
        _ => Err("segue, background, cubic or bbr".to_owned()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if let Some(count) = arguments.drawn.filter(|_| arguments.beside) {
        return drawn_beside(&arguments, count);
    }
    if let Some(count) = arguments.drawn {
        return drawn(&arguments, count);
    }
    if arguments.beside {
        return beside(&arguments);
    }
    println!(
        "|   KB/s |  rtt | queue | bulk |    p50 |    p99 |    max | target | wait p50 | used |"
    );
    println!(
        "|-------:|-----:|------:|------|-------:|-------:|-------:|-------:|---------:|-----:|"
    );
    for rate in &arguments.rates {
        for rtt in &arguments.rtts {
            for queue in &arguments.queues {
                for both in [false, true] {
                    println!("{}", line(&arguments, (*rate, *rtt, *queue), both)?);
                }
            }
        }
    }
    Ok(())
}

fn beside(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    println!("|   KB/s |  rtt | queue | ours first | theirs first |");
    println!("|-------:|-----:|------:|-----------:|-------------:|");
    for rate in &arguments.rates {
        for rtt in &arguments.rtts {
            for queue in &arguments.queues {
                let [ours, theirs] = [(1, 5), (5, 1)].map(|(ours, theirs)| {
                    let lane = lane(arguments, (*rate, *rtt, *queue));
                    let flow = |control, from| Flow {
                        control,
                        up: Some(Duration::from_secs(from)),
                        down: None,
                        until: None,
                    };
                    let scenario = Scenario {
                        up: lane.clone(),
                        down: lane,
                        flows: vec![flow(arguments.control, ours), flow(arguments.other, theirs)],
                        time: Duration::from_secs(arguments.seconds),
                        from: Duration::from_secs(10),
                        pauses: None,
                    };
                    run(&scenario, arguments.seed).map(|outcome| {
                        outcome.up[0] as f64 / outcome.up.iter().sum::<u64>().max(1) as f64
                    })
                });
                println!(
                    "| {:>6.1} | {rtt:>4} | {queue:>5} | {:>10.2} | {:>12.2} |",
                    *rate as f64 / 1024.0,
                    ours?,
                    theirs?
                );
            }
        }
    }
    Ok(())
}

fn lane(arguments: &Arguments, (rate, rtt, queue): (u64, u64, u64)) -> LaneSpec {
    LaneSpec {
        rates: vec![(Duration::ZERO, rate)],
        delays: vec![(Duration::ZERO, Duration::from_millis(rtt) / 2)],
        queue: (rate * queue / 1000).max(6 * PACKET),
        loss: arguments.loss,
        jitter: Duration::ZERO,
    }
}

/// Links without losses by chance, which alone would keep the other sender from the link.
fn drawn_beside(arguments: &Arguments, count: u64) -> Result<(), Box<dyn Error>> {
    println!("| seed |     KB/s |  rtt | queue | ours first | theirs first |");
    println!("|-----:|---------:|-----:|------:|-----------:|-------------:|");
    let mut shares = Vec::new();
    for seed in arguments.seed..arguments.seed + count {
        let link = DrawnLink { loss: 0, ..DrawnLink::draw(seed, false) };
        let share = |is_first| link.share_beside(seed, arguments.other, is_first);
        let (first, last) = (share(true)?, share(false)?);
        shares.extend([first, last]);
        println!(
            "| {seed:>4} | {:>8.1} | {:>4} | {:>5} | {first:>10.2} | {last:>12.2} |",
            link.rate as f64 / 1024.0,
            link.trip.as_millis(),
            link.queue.as_millis()
        );
    }
    let within = |least: f64, most: f64| {
        shares.iter().filter(|share| (least..=most).contains(*share)).count()
    };
    println!(
        "\nof {} shares {} are 0.25 to 0.75, {} less than 0.1, {} more than 0.9",
        shares.len(),
        within(0.25, 0.75),
        within(0.0, 0.1),
        within(0.9, 1.0)
    );
    Ok(())
}

fn drawn(arguments: &Arguments, count: u64) -> Result<(), Box<dyn Error>> {
    println!(
        "| seed |     KB/s |  rtt | queue | loss | bulk |    p99 |  limit | met | used | met |"
    );
    println!(
        "|-----:|---------:|-----:|------:|-----:|------|-------:|-------:|-----|------|-----|"
    );
    for both in [false, true] {
        let (mut quick, mut full) = (0, 0);
        for seed in arguments.seed..arguments.seed + count {
            let verdict = DrawnLink::draw(seed, both).judge(seed)?;
            quick += u64::from(verdict.is_quick());
            full += u64::from(verdict.is_full());
            if !arguments.misses || !verdict.is_quick() || !verdict.is_full() {
                println!("| {seed:>4} {verdict}");
            }
        }
        let ways = if both { "both ways" } else { "up" };
        println!("\n{ways}: of {count} links {quick} are quick, {full} are full.\n");
    }
    Ok(())
}

fn line(
    arguments: &Arguments,
    (rate, rtt, queue): (u64, u64, u64),
    both: bool,
) -> Result<String, Box<dyn Error>> {
    let lane = lane(arguments, (rate, rtt, queue));
    let begin = Duration::from_secs(1);
    let flow = Flow {
        control: arguments.control,
        up: Some(begin),
        down: both.then_some(begin),
        until: None,
    };
    let scenario = Scenario {
        up: lane.clone(),
        down: lane,
        flows: vec![flow],
        time: Duration::from_secs(arguments.seconds),
        from: Duration::from_secs(arguments.seconds) / 4,
        pauses: None,
    };
    let outcome = run(&scenario, arguments.seed)?;
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let target = rtt as f64 + 2e3 * PACKET as f64 / rate as f64 + 20.0;
    if arguments.late {
        for (at, trip) in outcome.timed.iter().filter(|(_, trip)| millis(*trip) > target) {
            println!("  late: {:.1} ms, answered after {:.2} s", millis(*trip), at.as_secs_f64());
        }
    }
    let used = |bytes: &[u64], way: usize| bytes[0] as f64 / outcome.capacity[way] as f64;
    let used = match both {
        false => used(&outcome.up, 0),
        true => used(&outcome.up, 0).min(used(&outcome.down, 1)),
    };
    Ok(format!(
        "| {:>6.1} | {rtt:>4} | {queue:>5} | {:<4} | {:>6.1} | {:>6.1} | {:>6.1} | {target:>6.1} | \
         {:>8.1} | {used:.2} |",
        rate as f64 / 1024.0,
        if both { "both" } else { "up" },
        millis(outcome.percentile(50)),
        millis(outcome.percentile(99)),
        millis(outcome.percentile(100)),
        millis(percentile(&outcome.queue, 50)),
    ))
}
