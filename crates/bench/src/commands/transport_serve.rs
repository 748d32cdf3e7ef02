//! `segue-bench transport-serve`: the server of `atp-latency`.

use segue_bench::transport::{SERVING, Serve, serve};

use super::{Outcome, text};

pub(crate) fn run(options: &Serve) -> Outcome {
    serve(options, || println!("{SERVING}")).map_err(text)
}
