//! A cluster of three etcd members on loopback, which tests kill, freeze and start again.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use lockkeeper_testing::{Signal, skip, until};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

/// Three members.
pub(crate) struct Cluster {
    folder: TempDir,
    /// For clients and for members.
    ports: Vec<(u16, u16)>,
    members: Vec<Option<Child>>,
}

impl Cluster {
    /// Starts the members and waits until they have a leader. None where etcd is not installed.
    pub(crate) fn start() -> Option<Self> {
        let is_there = |program: &str| Command::new(program).arg("--help").output().is_ok();
        if !is_there("etcd") || !is_there("etcdctl") {
            skip("the programs etcd and etcdctl");
            return None;
        }
        // A tmpfs where there is one: elections are about votes, not about disks.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let ports = free_ports().chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let mut cluster = Self { folder, ports, members: vec![None, None, None] };
        (0..3).for_each(|member| cluster.start_member(member));
        until("the cluster has a leader", || cluster.leader().is_some());
        Some(cluster)
    }

    pub(crate) fn start_member(&mut self, member: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = self.ports[member];
        let all: Vec<String> =
            self.ports.iter().enumerate().map(|(at, (_, peer))| format!("m{at}={}", url(*peer))).collect();
        let log = std::fs::File::create(self.folder.path().join(format!("log{member}"))).unwrap();
        let started = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.folder.path().join(format!("data{member}")))
            .args(["--name", &format!("m{member}")])
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &all.join(","), "--logger", "zap"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.members[member] = Some(started.unwrap());
    }

    /// The address of these members for lockkeeper, in this order.
    pub(crate) fn address(&self, members: &[usize]) -> String {
        let hosts: Vec<String> =
            members.iter().map(|at| format!("127.0.0.1:{}", self.ports[*at].0)).collect();
        format!("etcd://{}", hosts.join(","))
    }

    /// The member that leads, if a majority agrees on one.
    pub(crate) fn leader(&self) -> Option<usize> {
        let votes: Vec<usize> = (0..3).filter_map(|member| self.leader_by(member)).collect();
        (0..3).find(|leader| votes.iter().filter(|vote| *vote == leader).count() >= 2)
    }

    /// The leader that this member knows.
    fn leader_by(&self, member: usize) -> Option<usize> {
        let leader = self.status_of(member)?["leader"].as_u64()?;
        (0..3).find(|other| {
            let status = self.status_of(*other);
            status.is_some_and(|status| status["header"]["member_id"].as_u64() == Some(leader))
        })
    }

    fn status_of(&self, member: usize) -> Option<serde_json::Value> {
        let endpoint = format!("127.0.0.1:{}", self.ports[member].0);
        let mut command = Command::new("etcdctl");
        command.args([
            "--endpoints",
            &endpoint,
            "--command-timeout",
            "2s",
            "endpoint",
            "status",
            "-w",
            "json",
        ]);
        let output = command.env("ETCDCTL_API", "3").stderr(Stdio::null()).output().ok()?;
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(found[0]["Status"].clone())
    }

    /// Kills a member as a power cut does.
    pub(crate) fn kill(&mut self, member: usize) {
        let mut killed = self.members[member].take().unwrap();
        killed.kill().unwrap();
        killed.wait().unwrap();
    }

    /// Lets a member answer nobody any more, or again: neither clients nor the other members.
    pub(crate) fn freeze(&self, member: usize, is_frozen: bool) {
        let pid = Pid::from_child(self.members[member].as_ref().unwrap());
        kill_process(pid, if is_frozen { Signal::STOP } else { Signal::CONT }).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in self.members.iter_mut().flatten() {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// Ports that were free a moment ago.
fn free_ports() -> Vec<u16> {
    let listeners: Vec<TcpListener> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
