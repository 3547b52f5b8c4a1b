//! The simulated network: namespaces, each with a card, and links that lose packets without a word.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use lockkeeper_testing::Finished;

/// Namespaces with a first process. They end with the test, and everything in them too.
pub(crate) struct Namespaces {
    unshare: Child,
    /// The first process in them.
    pub(crate) first: u32,
}

impl Namespaces {
    /// Makes namespaces. In them, `script` runs with these arguments (`$0`, `$1` …) before anything else.
    pub(crate) fn start(kinds: &[&str], script: &str, args: &[&str]) -> Self {
        let script = format!("{script} && echo up && exec sleep infinity");
        let mut unshare = Command::new("unshare");
        unshare.args(kinds).args(["--fork", "--kill-child", "sh", "-c", &script]).args(args);
        let mut unshare = unshare.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(unshare.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let first = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        Self { unshare, first }
    }

    /// Runs `ip` in the network namespace.
    pub(crate) fn ip(&self, line: &str) {
        let mut enter = Command::new("nsenter");
        enter.args(["--net", "--target", &self.first.to_string(), "ip"]).args(line.split(' '));
        Finished::of(&mut enter).code(0);
    }
}

/// Kills the first process, and with it the others: a namespace of a host that was taken away.
impl Drop for Namespaces {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

/// Runs `ip` in the namespace of the server.
pub(crate) fn ip(line: &str) {
    Finished::of(Command::new("ip").args(line.split(' '))).code(0);
}

/// The address of the server for one host.
pub(crate) fn address(host: usize) -> String {
    format!("10.77.{host}.1")
}

/// Where a host is.
pub(crate) fn address_of(host: usize) -> String {
    format!("10.77.{host}.2")
}

/// A cable between the server and a host. Dropping it takes it away.
pub(crate) struct Cable {
    host: usize,
}

impl Cable {
    /// Connects a host.
    pub(crate) fn connect(host: usize, namespaces: &Namespaces) -> Self {
        let cable = Self { host };
        let first = namespaces.first;
        ip(&format!("link add lk{host} type veth peer name eth0 netns {first}"));
        ip(&format!("link set lk{host} address {}", mac(host, 1, true)));
        ip(&format!("addr add {}/24 dev lk{host}", address(host)));
        ip(&format!("link set lk{host} up"));
        namespaces.ip("link set lo up");
        namespaces.ip(&format!("link set eth0 address {}", mac(host, 2, true)));
        namespaces.ip(&format!("addr add {}/24 dev eth0", address_of(host)));
        namespaces.ip("link set eth0 up");
        cable.link(namespaces, true, true);
        cable
    }

    /// Lets packets through in each direction, or loses them without a word: they are addressed to a card that does not exist.
    pub(crate) fn link(&self, namespaces: &Namespaces, to_server: bool, to_host: bool) {
        let host = self.host;
        let (server, own) = (mac(host, 1, to_server), mac(host, 2, to_host));
        namespaces.ip(&format!("neigh replace {} lladdr {server} dev eth0 nud permanent", address(host)));
        ip(&format!("neigh replace {} lladdr {own} dev lk{host} nud permanent", address_of(host)));
    }
}

/// At once: the namespace of the host goes later, and another host may get the cable before.
impl Drop for Cable {
    fn drop(&mut self) {
        let name = format!("lk{}", self.host);
        let _ = Command::new("ip").args(["link", "del", &name]).stderr(Stdio::null()).status();
    }
}

/// The card at one end of a cable, or one that does not exist.
pub(crate) fn mac(cable: usize, end: usize, is_right: bool) -> String {
    format!("02:00:00:00:{cable:02x}:{}{end}", if is_right { "0" } else { "f" })
}
