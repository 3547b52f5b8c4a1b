//! etcd with one member, or with three, each in a network namespace of its own.

use std::thread;
use std::time::Duration;

use lockkeeper_testing::{Certificate, Dice, EtcdCluster, EtcdPlace, Relay, until};
use tempfile::TempDir;

use crate::history::History;
use crate::network::{Namespaces, address, ip, mac};
use crate::server::{CLONE, LONG, Server};

/// Ports of relays: those of host 0, then those of host 1 …
const RELAYS: u16 = 7000;
/// Numbers of the cards of members.
const CARDS: usize = 100;

pub(crate) struct Etcd<const MEMBERS: usize> {
    cluster: EtcdCluster,
    namespaces: Vec<Namespaces>,
    relays: Vec<Relay>,
    certificate: Certificate,
    _folder: TempDir,
}

impl<const MEMBERS: usize> Etcd<MEMBERS> {
    fn start_members() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut addresses: Vec<String> = (0..=CLONE).map(address).collect();
        addresses.extend((0..MEMBERS).map(address_of));
        let certificate = Certificate::make(folder.path(), &addresses);
        ip("link add members type bridge");
        ip("addr add 10.78.0.1/24 dev members");
        ip("link set members up");
        let namespaces: Vec<Namespaces> = (0..MEMBERS).map(connect).collect();
        let places = namespaces.iter().enumerate().map(|(member, namespace)| EtcdPlace {
            client: format!("{}:2379", address_of(member)),
            peer: format!("{}:2380", address_of(member)),
            namespace: Some(namespace.first),
        });
        let cluster = EtcdCluster::start_at(places.collect(), Some(certificate.clone()))?;
        let relays = (0..=CLONE).flat_map(|host| (0..MEMBERS).map(move |member| (host, member)));
        let relays =
            relays.map(|(host, member)| Relay::start(Self::port(host, member), &cluster.endpoint(member)));
        let relays = relays.collect();
        Some(Self { cluster, namespaces, relays, certificate, _folder: folder })
    }

    fn port(host: usize, member: usize) -> u16 {
        RELAYS + u16::try_from(MEMBERS * host + member).unwrap()
    }

    fn address_for(&self, host: usize) -> String {
        // Each host begins with another member.
        let members = (0..MEMBERS).map(|member| (member + host) % MEMBERS);
        let places = members.map(|member| format!("{}:{}", address(host), Self::port(host, member)));
        let places: Vec<String> = places.collect();
        format!("etcds://{}?cacert={}", places.join(","), self.certificate.roots())
    }

    fn slow_relays(&self, by: Duration) {
        self.relays.iter().for_each(|relay| relay.slow_down(by));
    }

    /// Cuts a member off from the other ones, or lets them talk again. Hosts reach all of them.
    fn link(&self, member: usize, is_right: bool) {
        for other in (0..MEMBERS).filter(|other| *other != member) {
            for (here, there) in [(member, other), (other, member)] {
                let (to, card) = (address_of(there), mac(CARDS + there, 2, is_right));
                self.namespaces[here].ip(&format!("neigh replace {to} lladdr {card} dev eth0 nud permanent"));
            }
        }
    }

    fn leader_or_follower(&self, is_leader: bool, dice: &mut Dice) -> usize {
        let mut leader = None;
        until("there is a leader", || {
            leader = self.cluster.leader();
            leader.is_some()
        });
        let leader = leader.unwrap();
        if is_leader { leader } else { (leader + 1 + dice.index(MEMBERS - 1)) % MEMBERS }
    }
}

/// Where a member is.
fn address_of(member: usize) -> String {
    format!("10.78.0.{}", 10 + member)
}

/// A namespace for a member, on the bridge.
fn connect(member: usize) -> Namespaces {
    let namespaces = Namespaces::start(&["--net"], "true", &["member"]);
    let first = namespaces.first;
    ip(&format!("link add member{member} type veth peer name eth0 netns {first}"));
    ip(&format!("link set member{member} master members up"));
    namespaces.ip("link set lo up");
    namespaces.ip(&format!("link set eth0 address {}", mac(CARDS + member, 2, true)));
    namespaces.ip(&format!("addr add {}/24 dev eth0", address_of(member)));
    namespaces.ip("link set eth0 up");
    namespaces
}

/// What can happen to the only member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AloneFault {
    Frozen,
    Killed,
    SnapshotRestored,
    FilesReplaced,
    Emptied,
}

impl Server for Etcd<1> {
    type Fault = AloneFault;

    const FAULTS: &'static [AloneFault] = &[
        AloneFault::Frozen,
        AloneFault::Killed,
        AloneFault::SnapshotRestored,
        AloneFault::FilesReplaced,
        AloneFault::Emptied,
    ];

    fn start(_history: &History) -> Option<Self> {
        Self::start_members()
    }

    fn url(&self, host: usize) -> String {
        self.address_for(host)
    }

    fn fail(&mut self, fault: AloneFault, _victim: usize, dice: &mut Dice) {
        // What happens meanwhile is forgotten.
        let moment = Duration::from_secs(1) + dice.span_below(Duration::from_secs(2));
        match fault {
            AloneFault::Frozen => {
                self.cluster.freeze(0, true);
                thread::sleep(Duration::from_secs(1) + dice.span_below(LONG));
                self.cluster.freeze(0, false);
            }
            AloneFault::Killed => {
                self.cluster.kill(0);
                thread::sleep(moment);
                self.cluster.start_member(0);
            }
            AloneFault::SnapshotRestored => {
                let name = format!("snapshot-{:x}", dice.number());
                self.cluster.save(&name);
                thread::sleep(moment);
                self.cluster.restore(&name);
            }
            AloneFault::FilesReplaced => {
                let name = format!("copy-{:x}", dice.number());
                self.cluster.copy("data0", &name);
                thread::sleep(LONG);
                self.cluster.copy(&name, "data0");
            }
            AloneFault::Emptied => self.cluster.lose_data(),
        }
    }

    fn slow_down(&self, by: Duration) {
        self.slow_relays(by);
    }
}

/// What can happen to one of three members, or to two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClusterFault {
    LeaderKilled,
    FollowerKilled,
    LeaderFrozen,
    FollowerFrozen,
    LeaderCutOff,
    FollowerCutOff,
    MajorityLost,
}

impl Server for Etcd<3> {
    type Fault = ClusterFault;

    const FAULTS: &'static [ClusterFault] = &[
        ClusterFault::LeaderKilled,
        ClusterFault::FollowerKilled,
        ClusterFault::LeaderFrozen,
        ClusterFault::FollowerFrozen,
        ClusterFault::LeaderCutOff,
        ClusterFault::FollowerCutOff,
        ClusterFault::MajorityLost,
    ];

    fn start(_history: &History) -> Option<Self> {
        let cluster = Self::start_members()?;
        (0..3).for_each(|member| cluster.link(member, true));
        Some(cluster)
    }

    fn url(&self, host: usize) -> String {
        self.address_for(host)
    }

    fn fail(&mut self, fault: ClusterFault, _victim: usize, dice: &mut Dice) {
        use ClusterFault::{FollowerCutOff, FollowerFrozen, FollowerKilled};
        let is_leader = !matches!(fault, FollowerCutOff | FollowerFrozen | FollowerKilled);
        let member = self.leader_or_follower(is_leader, dice);
        match fault {
            ClusterFault::LeaderKilled | FollowerKilled => {
                self.cluster.kill(member);
                thread::sleep(dice.span_below(LONG));
                self.cluster.start_member(member);
            }
            ClusterFault::LeaderFrozen | FollowerFrozen => {
                self.cluster.freeze(member, true);
                thread::sleep(LONG);
                self.cluster.freeze(member, false);
            }
            ClusterFault::LeaderCutOff | FollowerCutOff => {
                self.link(member, false);
                thread::sleep(LONG);
                self.link(member, true);
            }
            ClusterFault::MajorityLost => {
                let gone = [member, (member + 1) % 3];
                gone.iter().for_each(|member| self.cluster.kill(*member));
                thread::sleep(dice.span_below(LONG));
                gone.iter().for_each(|member| self.cluster.start_member(*member));
            }
        }
        until("there is a leader again", || self.cluster.leader().is_some());
    }

    fn slow_down(&self, by: Duration) {
        self.slow_relays(by);
    }
}
