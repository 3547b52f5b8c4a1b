//! A cluster of etcd members, which tests kill, freeze, start again and restore.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::{Certificate, Signal, skip_server, until};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

/// An hour before the first moment, in microseconds.
const LONG_AGO: &str = "-3600000000";

/// One member, or several.
pub struct EtcdCluster {
    folder: TempDir,
    places: Vec<EtcdPlace>,
    /// What members show to clients.
    certificate: Option<Certificate>,
    members: Vec<Option<Child>>,
}

/// Where a member runs and listens.
#[derive(Clone, Debug)]
pub struct EtcdPlace {
    /// `HOST:PORT` for clients.
    pub client: String,
    /// `HOST:PORT` for other members.
    pub peer: String,
    /// A process in the network namespace of the member, if that is another one.
    pub namespace: Option<u32>,
}

impl EtcdCluster {
    /// Starts the members on loopback and waits until they have a leader. None where etcd is not installed.
    pub fn start(members: usize) -> Option<Self> {
        let at = |port: u16| format!("127.0.0.1:{port}");
        let place = |ports: &[u16]| EtcdPlace { client: at(ports[0]), peer: at(ports[1]), namespace: None };
        Self::start_at(free_ports(2 * members).chunks(2).map(place).collect(), None)
    }

    /// Starts a member at each of these places. With a certificate, clients use TLS.
    pub fn start_at(places: Vec<EtcdPlace>, certificate: Option<Certificate>) -> Option<Self> {
        let is_there = |program: &str| Command::new(program).arg("--help").output().is_ok();
        if !is_there("etcd") || !is_there("etcdctl") {
            skip_server("the programs etcd and etcdctl");
            return None;
        }
        // A tmpfs where there is one: elections are about votes, not about disks.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let members = places.iter().map(|_| None).collect();
        let mut cluster = Self { folder, places, certificate, members };
        (0..cluster.members.len()).for_each(|member| cluster.start_member(member));
        until("the cluster has a leader", || cluster.leader().is_some());
        Some(cluster)
    }

    /// Starts a member, also one that was killed.
    pub fn start_member(&mut self, member: usize) {
        let EtcdPlace { client, peer, namespace } = &self.places[member];
        let peer = format!("http://{peer}");
        let all = self.places.iter().enumerate().map(|(at, place)| format!("m{at}=http://{}", place.peer));
        let log = std::fs::File::create(self.folder.path().join(format!("log{member}"))).unwrap();
        let mut command = match namespace {
            None => Command::new("etcd"),
            Some(pid) => {
                let mut enter = Command::new("nsenter");
                enter.args(["--net", "--target", &pid.to_string(), "etcd"]);
                enter
            }
        };
        let scheme = if let Some(shown) = &self.certificate {
            command.args(["--cert-file", &shown.server(), "--key-file", &shown.key()]);
            "https"
        } else {
            "http"
        };
        let client = format!("{scheme}://{client}");
        let started = command
            .arg("--data-dir")
            .arg(self.folder.path().join(format!("data{member}")))
            .args(["--name", &format!("m{member}")])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.collect::<Vec<_>>().join(","), "--logger", "zap"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.members[member] = Some(started.unwrap());
    }

    /// Where a member listens for clients.
    #[must_use]
    pub fn endpoint(&self, member: usize) -> String {
        self.places[member].client.clone()
    }

    /// The address of these members for lockkeeper, in this order.
    pub fn address(&self, members: &[usize]) -> String {
        let hosts: Vec<String> = members.iter().map(|at| self.endpoint(*at)).collect();
        format!("etcd://{}", hosts.join(","))
    }

    /// The member that leads, if a majority agrees on one.
    pub fn leader(&self) -> Option<usize> {
        let members = 0..self.members.len();
        let votes: Vec<usize> = members.clone().filter_map(|member| self.leader_by(member)).collect();
        members
            .into_iter()
            .find(|leader| votes.iter().filter(|vote| *vote == leader).count() > self.members.len() / 2)
    }

    /// The leader that this member knows.
    fn leader_by(&self, member: usize) -> Option<usize> {
        let leader = self.status_of(member)?["leader"].as_u64()?;
        (0..self.members.len()).find(|other| {
            let status = self.status_of(*other);
            status.is_some_and(|status| status["header"]["member_id"].as_u64() == Some(leader))
        })
    }

    fn status_of(&self, member: usize) -> Option<serde_json::Value> {
        let line = ["--command-timeout", "2s", "endpoint", "status", "-w", "json"];
        let output = self.etcdctl_at(member).args(line).stderr(Stdio::null()).output().ok()?;
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(found[0]["Status"].clone())
    }

    fn etcdctl_at(&self, member: usize) -> Command {
        let mut command = Command::new("etcdctl");
        let endpoint = self.endpoint(member);
        command.env("ETCDCTL_API", "3");
        match &self.certificate {
            None => command.args(["--endpoints", &endpoint]),
            Some(shown) => {
                command.args(["--endpoints", &format!("https://{endpoint}"), "--cacert", &shown.roots()])
            }
        };
        command
    }

    /// Kills a member as a power cut does.
    pub fn kill(&mut self, member: usize) {
        let mut killed = self.members[member].take().unwrap();
        killed.kill().unwrap();
        killed.wait().unwrap();
    }

    /// Saves a snapshot of the cluster under this name.
    pub fn save(&self, name: &str) {
        let path = self.folder.path().join(name);
        succeed(self.etcdctl_at(0).args(["snapshot", "save", path.to_str().unwrap()]));
    }

    /// Kills the only member, and starts one from a snapshot in its place.
    pub fn restore(&mut self, name: &str) {
        self.kill(0);
        let [path, data] = [name, "data0"].map(|name| self.folder.path().join(name));
        std::fs::remove_dir_all(&data).unwrap();
        let peer = format!("http://{}", self.places[0].peer);
        let [path, data] = [&path, &data].map(|path| path.to_str().unwrap());
        let cluster = format!("m0={peer}");
        let mut restore = Command::new("etcdctl");
        restore.env("ETCDCTL_API", "3").args([
            "snapshot",
            "restore",
            path,
            "--data-dir",
            data,
            "--name",
            "m0",
        ]);
        restore.args(["--initial-cluster", &cluster, "--initial-advertise-peer-urls", &peer]);
        succeed(&mut restore);
        self.start_again();
    }

    /// Kills the only member and copies its files, or puts the copy back. Then starts the member again.
    pub fn copy(&mut self, from: &str, to: &str) {
        self.kill(0);
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        let _ = std::fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(copied.success());
        self.start_again();
    }

    /// Kills the only member, and starts one with an empty data folder in its place.
    pub fn lose_data(&mut self) {
        self.kill(0);
        std::fs::remove_dir_all(self.folder.path().join("data0")).unwrap();
        self.start_again();
    }

    /// Kills the only member, and starts it again.
    pub fn restart(&mut self) {
        self.kill(0);
        self.start_again();
    }

    fn start_again(&mut self) {
        self.start_member(0);
        until("the member leads", || self.leader().is_some());
    }

    /// Lets a member answer nobody any more, or again: neither clients nor the other members.
    pub fn freeze(&self, member: usize, is_frozen: bool) {
        let pid = Pid::from_child(self.members[member].as_ref().unwrap());
        kill_process(pid, if is_frozen { Signal::STOP } else { Signal::CONT }).unwrap();
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for member in self.members.iter_mut().flatten() {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Ports that were free a moment ago.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// Notes that a cluster remembers everything of this project: nobody holds anything from before it was started.
///
/// # Panics
/// If the member at this endpoint does not answer, or has no such project.
pub fn etcd_remembers(endpoint: &str, project: &str) {
    let etcdctl = |args: &[&str]| {
        let mut command = Command::new("etcdctl");
        let output =
            command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let key = |name: &str| format!("/lockkeeper/{project}/{name}");
    let note = etcdctl(&["get", "--print-value-only", &key("memory")]);
    let mut fields: Vec<&str> = note.split_whitespace().collect();
    // The clock of a project begins at 0.
    fields[2] = LONG_AGO;
    etcdctl(&["put", "--", &key("memory"), &fields.join(" ")]);
    etcdctl(&["put", "--", &key("since"), LONG_AGO]);
}
