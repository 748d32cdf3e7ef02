//! A host's access link: what it is like, and how it is put on the host's devices.
//!
//! Each host has one link to the bed's switch, a namespace that routes between the hosts. The
//! link takes one of two ways, and may change from one to the other under running connections:
//!
//! ```text
//!            eth0 ════ veth, tbf at both ends ════════════ pN
//!   host ──<                                                  >── switch (routes) ── other hosts
//!            tun0 ──── relay threads (RelayQueue x 2) ──── tN
//! ```
//!
//! A link with nothing but a rate is a veth pair shaped by the kernel. Both directions may share
//! that rate, as on a radio: then they pass one queue, that of the host's device ifb0. Delay,
//! jitter, loss, reordering and rate traces need the relay, which then does the rate as well.

use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::Duration;

use super::error::Result;
use super::netns::NetNs;
use super::relay::Relay;

/// The hosts' gateway, on the switch's loopback.
const GATEWAY: &str = "10.7.255.254";

/// Bytes that wait in front of a link without a rate of its own.
const QUEUE_BYTES_DEFAULT: u64 = 1 << 20;

/// The smallest default queue: twenty full packets.
const QUEUE_BYTES_MIN: u64 = 32 << 10;

/// The device whose queue both directions of a shared link pass.
const SHARED: &str = "ifb0";

/// The properties of a link, the same in both directions. The default is as fast as the machine.
#[derive(Debug, Clone, Default)]
pub struct LinkSpec {
    /// Bytes a second; none: unlimited.
    pub rate: Option<u64>,
    /// Both directions together have the rate; only where no property but the rate is set.
    pub is_shared: bool,
    /// Delay of each direction: half of what is added to a round trip.
    pub delay: Duration,
    /// Additional random delay, up to this; packets stay in order.
    pub jitter: Duration,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Share of packets that later ones overtake, 0 to 1.
    pub reorder: f64,
    /// Rates in bytes a second with how long each holds, repeated for ever; overrides `rate`.
    pub trace: Vec<(Duration, u64)>,
    /// Bytes that may wait for the link, then the newest are dropped; none: one second's worth.
    pub queue: Option<u64>,
}

impl LinkSpec {
    /// A link of `kilobytes` (of 1024 bytes) a second.
    pub fn kb_per_s(kilobytes: u64) -> LinkSpec {
        LinkSpec { rate: Some(kilobytes * 1024), ..LinkSpec::default() }
    }

    /// The same link with `rtt` added to each round trip.
    pub fn with_rtt(self, rtt: Duration) -> LinkSpec {
        LinkSpec { delay: rtt / 2, ..self }
    }

    pub(crate) fn queue_bytes(&self) -> u64 {
        let fastest = self.trace.iter().map(|(_, rate)| *rate).max().or(self.rate);
        let second = fastest.map_or(QUEUE_BYTES_DEFAULT, |rate| rate.max(QUEUE_BYTES_MIN));
        self.queue.unwrap_or(second)
    }

    fn needs_relay(&self) -> bool {
        let times = !self.delay.is_zero() || !self.jitter.is_zero() || !self.trace.is_empty();
        times || self.loss > 0.0 || self.reorder > 0.0
    }
}

/// A host's link as it is laid.
#[derive(Debug)]
pub(crate) struct Cable {
    host: NetNs,
    switch: NetNs,
    /// Name of the veth device at the switch.
    port: String,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    addr: Ipv4Addr,
    link: LinkSpec,
    down: bool,
    relay: Option<Relay>,
}

impl Cable {
    /// Connects the `number`-th host to the switch by a link as fast as the machine.
    pub(crate) fn lay(host: NetNs, switch: NetNs, number: u8, seed: u64) -> Result<Cable> {
        let addr = Ipv4Addr::new(10, 7, 0, number);
        let port = format!("p{number}");
        let name = host.name();
        switch.ip(&format!(
            "link add {port} type veth peer name eth0 netns {name}\n\
             link set {port} up\n\
             route add {addr} dev {port}\n"
        ))?;
        host.ip(&format!(
            "link set eth0 up\n\
             addr add {addr}/32 dev eth0\n\
             route add {GATEWAY} dev eth0\n\
             route add default via {GATEWAY} dev eth0 src {addr}\n"
        ))?;
        let state = Mutex::new(State { addr, link: LinkSpec::default(), down: false, relay: None });
        Ok(Cable { host, switch, port, seed, state })
    }

    pub(crate) fn addr(&self) -> Ipv4Addr {
        self.lock().addr
    }

    /// Gives the host, whose link needs no relay, another address: what goes to the old one is
    /// lost.
    pub(crate) fn move_to(&self, addr: Ipv4Addr) -> Result<()> {
        let mut state = self.lock();
        let old = std::mem::replace(&mut state.addr, addr);
        self.host.ip(&format!(
            "addr add {addr}/32 dev eth0\n\
             route replace default via {GATEWAY} dev eth0 src {addr}\n\
             addr del {old}/32 dev eth0\n"
        ))?;
        self.switch.ip(&format!("route replace blackhole {old}\n"))?;
        self.plug(addr, state.down)
    }

    pub(crate) fn link(&self) -> LinkSpec {
        self.lock().link.clone()
    }

    /// Makes the link `link`; what is under way on the old one may be lost.
    pub(crate) fn set_link(&self, link: LinkSpec) -> Result<()> {
        let mut state = self.lock();
        if link.needs_relay() {
            self.take_relay(&mut state, &link)?;
        } else {
            self.take_veth(&mut state, &link)?;
        }
        state.link = link;
        Ok(())
    }

    /// Down: the switch, or the relay, drops whatever comes from the host or is for it.
    ///
    /// The devices stay up: a carrier that returns is noticed only up to a second later.
    pub(crate) fn set_down(&self, down: bool) -> Result<()> {
        let mut state = self.lock();
        state.down = down;
        match &state.relay {
            Some(relay) => relay.set_down(down),
            None => self.plug(state.addr, down)?,
        }
        Ok(())
    }

    /// Bytes that the relay has carried from the host and to it; none without a relay.
    pub(crate) fn carried(&self) -> Option<[u64; 2]> {
        self.lock().relay.as_ref().map(Relay::carried)
    }

    /// Ends the relay's threads, which hold devices and so namespaces.
    pub(crate) fn cut(&self) {
        self.lock().relay = None;
    }

    fn take_relay(&self, state: &mut State, link: &LinkSpec) -> Result<()> {
        if let Some(relay) = &state.relay {
            relay.set_link(link);
            return Ok(());
        }
        let far = self.port.replace('p', "t");
        let relay = Relay::start((&self.host, "tun0"), (&self.switch, &far), link, self.seed)?;
        relay.set_down(state.down);
        self.switch.ip(&format!("link set {far} up\nroute replace {} dev {far}\n", state.addr))?;
        self.host.ip(&format!(
            "link set tun0 up\nroute replace default dev tun0 src {}\n",
            state.addr
        ))?;
        state.relay = Some(relay);
        Ok(())
    }

    fn take_veth(&self, state: &mut State, link: &LinkSpec) -> Result<()> {
        // Fails where there is none, which is right; the redirection ends with its qdisc.
        let _ = self.host.ip(&format!("link del {SHARED}\n"));
        let _ = self.host.tc("qdisc del dev eth0 clsact\n");
        for (ns, device) in [(&self.host, "eth0"), (&self.switch, self.port.as_str())] {
            shape(ns, device, link)?;
        }
        if let Some(rate) = link.rate.filter(|_| link.is_shared) {
            share(&self.host, rate, link)?;
        }
        if state.relay.is_some() {
            let addr = state.addr;
            self.host.ip(&format!("route replace default via {GATEWAY} dev eth0 src {addr}\n"))?;
            self.plug(addr, state.down)?;
            // Its devices, and the route over them, end with it.
            state.relay = None;
        }
        Ok(())
    }

    fn plug(&self, addr: Ipv4Addr, down: bool) -> Result<()> {
        let port = &self.port;
        // Fails where there is no rule, which is right.
        let _ = self.switch.ip(&format!("rule del iif {port} blackhole\n"));
        if down {
            return self
                .switch
                .ip(&format!("rule add iif {port} blackhole\nroute replace blackhole {addr}\n"));
        }
        self.switch.ip(&format!("route replace {addr} dev {port}\n"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Sets what `device` sends to the link's rate.
///
/// A shaped device does not take segmentation off the kernel's hands: its counters would miss
/// the headers of all packets but the first of each batch.
fn shape(ns: &NetNs, device: &str, link: &LinkSpec) -> Result<()> {
    let segments = if link.rate.is_some() { 1 } else { 65535 };
    ns.ip(&format!("link set {device} gso_max_segs {segments}\n"))?;
    // Open connections learn of it when they look up their route again.
    ns.sysctl("net/ipv4/route/flush", "1")?;
    let Some(rate) = link.rate.filter(|_| !link.is_shared) else {
        // Back to the default, which is no queue at all; fails where it is there already.
        let _ = ns.tc(&format!("qdisc del dev {device} root\n"));
        return Ok(());
    };
    ns.tc(&bucket(device, rate, link))
}

/// The command that has `device` send at `rate`.
fn bucket(device: &str, rate: u64, link: &LinkSpec) -> String {
    // Two packets at least; at high rates what 4 ms bring, for the timer's sake.
    let burst = (rate / 250).max(3_100);
    let limit = link.queue_bytes().max(burst);
    let bits = rate * 8;
    format!("qdisc replace dev {device} root tbf rate {bits}bit burst {burst} limit {limit}\n")
}

/// Has what `host` sends and what it receives pass one queue, which is emptied at `rate`.
fn share(host: &NetNs, rate: u64, link: &LinkSpec) -> Result<()> {
    host.ip(&format!("link add {SHARED} type ifb\nlink set {SHARED} up\n"))?;
    let redirect = |way: &str| {
        format!(
            "filter add dev eth0 {way} protocol all u32 match u32 0 0 \
             action mirred egress redirect dev {SHARED}\n"
        )
    };
    let filters = redirect("egress") + &redirect("ingress");
    host.tc(&(bucket(SHARED, rate, link) + "qdisc add dev eth0 clsact\n" + &filters))
}

/// Makes `ns` a switch: it routes between hosts and drops, silently, what is for none.
pub(crate) fn make_switch(ns: &NetNs) -> Result<()> {
    ns.sysctl("net/ipv4/ip_forward", "1")?;
    ns.ip(&format!("addr add {GATEWAY}/32 dev lo\nroute add blackhole 10.7.0.0/16\n"))
}
