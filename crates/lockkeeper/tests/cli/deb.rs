//! The Debian package: built by `scripts/deb` from the command under test, and installed into an empty system.

use std::path::Path;

use lockkeeper_testing::{is_installed, skip, world};

#[test]
fn the_package_installs_a_command_that_works() {
    if !["dpkg-deb", "strip", "readelf"].iter().all(|tool| is_installed(tool)) {
        return skip("dpkg-deb, strip and readelf");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/deb");
    // Without compression: the binary of a test is large.
    let world = world!().git().set("LOCKKEEPER_DEB_LEVEL", "0");
    let build = format!("'{}' --binary '{}' --out out", script.display(), world.program());
    let package = world.shell(&build).code(0).stdout().trim().to_owned();
    let version = env!("CARGO_PKG_VERSION").replace('-', "~");
    assert!(package.starts_with(&format!("out/lockkeeper_{version}_")), "{package}");
    world.shell(&format!("dpkg-deb -f {package} Version")).code(0).prints(&version);
    let is_root = world.shell("id -u").code(0).stdout().trim() == "0";
    if is_root {
        // A system without packages: also without the C library, which the command of a test needs.
        world
            .shell(
                "mkdir -p root/var/lib/dpkg/updates root/var/lib/dpkg/info && touch root/var/lib/dpkg/status",
            )
            .code(0);
        world.shell(&format!("dpkg --root=root --force-depends --log=/dev/null -i {package}")).code(0);
        world.shell("dpkg --root=root -s lockkeeper").code(0).prints("Status: install ok installed");
    } else {
        world.shell(&format!("dpkg-deb -x {package} root")).code(0);
    }
    world.shell("root/usr/bin/lockkeeper exec db -- echo held").code(0).prints("held");
    world.shell("root/usr/bin/lockkeeper --version").code(0).prints(env!("CARGO_PKG_VERSION"));
    world.shell("zcat root/usr/share/man/man1/lockkeeper-exec.1.gz").code(0).prints(".TH lockkeeper-exec 1");
    for file in [
        "share/bash-completion/completions/lockkeeper",
        "share/zsh/vendor-completions/_lockkeeper",
        "share/fish/vendor_completions.d/lockkeeper.fish",
        "share/doc/lockkeeper/copyright",
        "share/doc/lockkeeper/changelog.gz",
        "share/doc/lockkeeper/examples/queue/jobs.json",
    ] {
        assert!(world.path("root/usr").join(file).is_file(), "{file}");
    }
    let unit = "root/usr/lib/systemd/user/lockkeeper@.service";
    let text = std::fs::read_to_string(world.path(unit)).unwrap();
    assert!(text.contains("\nExecStart=/usr/bin/lockkeeper serve "), "{text}");
    if is_root {
        world.shell("dpkg --root=root --log=/dev/null -r lockkeeper").code(0);
        assert!(!world.path("root/usr/bin/lockkeeper").exists());
    }
}
