//! `segue-bench list`: everything that can be run.

use segue_bed::peer;
use segue_bench::transport::{self, System, speed};
use segue_bench::{fuse_floor, workload};

use super::experiments::{EXPERIMENTS, FUSE_FLOOR};

pub(crate) fn run() {
    println!("workloads:");
    for workload in workload::all() {
        line(workload.name(), workload.about());
    }
    println!("file systems:");
    for kind in peer::all().iter().chain(peer::more()) {
        line(kind.name, kind.about);
    }
    println!("experiments, each run alone:");
    for experiment in &EXPERIMENTS {
        line(experiment.name, experiment.about);
    }
    println!("file systems of {FUSE_FLOOR} (*: measured if none is named):");
    for variant in fuse_floor::ALL {
        let mark = if variant.usual { '*' } else { ' ' };
        println!("{mark} {:<26} {}", variant.name, variant.about);
    }
    println!("systems of {}:", transport::NAME);
    for system in System::all() {
        line(system.name(), system.about());
    }
    println!("systems of {}:", speed::NAME);
    for system in speed::System::ALL {
        line(system.name(), system.about());
    }
}

fn line(name: &str, about: &str) {
    println!("  {name:<13} {about}");
}
