//! A certificate for servers of a test, and the root that clients trust.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Finished;

/// The files `roots.pem`, `server.key` and `server.pem` in a folder.
#[derive(Clone, Debug)]
pub struct Certificate {
    folder: PathBuf,
}

impl Certificate {
    /// Makes a certificate for these IP addresses, and its root.
    #[must_use]
    pub fn make(folder: &Path, addresses: &[String]) -> Self {
        let names: Vec<String> = addresses.iter().map(|address| format!("IP:{address}")).collect();
        std::fs::write(folder.join("names"), format!("subjectAltName={}", names.join(","))).unwrap();
        let openssl = |line: &str| {
            let mut command = Command::new("openssl");
            Finished::of(command.current_dir(folder).args(line.split_whitespace())).code(0);
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
        openssl(&format!("req -x509 -subj /CN=roots -keyout roots.key -out roots.pem {key}"));
        openssl(&format!("req -subj /CN=server -keyout server.key -out server.csr {key}"));
        let signed_by = "-CA roots.pem -CAkey roots.key -CAcreateserial";
        openssl(&format!("x509 -req -in server.csr {signed_by} -days 2 -extfile names -out server.pem"));
        Self { folder: folder.to_owned() }
    }

    /// The file with the root.
    #[must_use]
    pub fn roots(&self) -> String {
        self.path("roots.pem")
    }

    /// The file with the private key of the server.
    #[must_use]
    pub fn key(&self) -> String {
        self.path("server.key")
    }

    /// The file with the certificate of the server.
    #[must_use]
    pub fn server(&self) -> String {
        self.path("server.pem")
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}
