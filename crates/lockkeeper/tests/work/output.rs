//! What commands write is kept byte for byte, within a limit, without growing the worker.

use std::os::unix::fs::MetadataExt;

use lockkeeper_core::run::Status;

use super::site::{Site, Worker, until};

const MIB: u64 = 1024 * 1024;

fn peak_memory(worker: &Worker) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn every_byte_is_kept_as_it_came() {
    let site = Site::new();
    let bytes: Vec<u8> =
        (0..200_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(site.dir().join("bytes"), &bytes).unwrap();
    let run =
        site.submit(&site.script("a", "cat bytes; cat bytes >&2; printf '\\033[31m\\377\\000no newline'"));
    site.drain("1");
    let mut expected = [bytes.clone(), bytes].concat();
    expected.extend(b"\x1b[31m\xff\0no newline");
    assert!(site.output_of(&run) == expected, "the bytes differ");
}

/// One line of a gigabyte, and a gigabyte of lines: the beginning and the end stay, the disk is given back, the worker
/// does not grow.
#[test]
fn a_gigabyte_of_output_is_cut_in_the_middle() {
    for (id, script) in [
        ("line", "printf begin; head -c 1073741824 /dev/zero | tr '\\0' x; printf end"),
        ("lines", "printf begin; yes 0123456789abcdef | head -c 1073741824; printf end"),
    ] {
        let site = Site::new();
        let mut worker = site.worker(&["--output-limit", "16"]);
        let run = site.submit(&site.script(id, script));
        assert_eq!(site.end_of(&run).status(), Status::Succeeded);
        let log = std::fs::metadata(site.runs.folder_of(&run).output()).unwrap();
        assert_eq!(log.len(), 1024 * MIB + 8, "the command's bytes stay where they were");
        until("the log was cut", || {
            let log = std::fs::metadata(site.runs.folder_of(&run).output()).unwrap();
            log.blocks() * 512 <= 17 * MIB
        });
        let cut: serde_json::Value =
            serde_json::from_slice(&std::fs::read(site.runs.folder_of(&run).cut()).unwrap()).unwrap();
        assert!(cut["cut_from"].as_u64().unwrap() >= MIB && cut["cut_to"].as_u64().unwrap() < log.len());
        let file = std::fs::File::open(site.runs.folder_of(&run).output()).unwrap();
        let mut edges = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut edges[..5], 0).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut edges[5..], log.len() - 3).unwrap();
        assert_eq!(&edges, b"beginend");
        assert!(peak_memory(&worker) < 64 * MIB, "{} bytes", peak_memory(&worker));
        worker.kill();
    }
}
