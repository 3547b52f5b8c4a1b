//! The settings of a store in etcd.

use lockkeeper_testing::World;

fn world() -> World {
    World::new(env!("CARGO_BIN_EXE_lockkeeper")).set("LOCKKEEPER_PROJECT", "p")
}

#[test]
fn a_password_in_arguments_is_refused_and_not_shown() {
    let said = world().run(["locks", "--store", "etcds://me:hunter2@etcd.example"]).code(2);
    let said = said.says("contains a password").says("ETCDCTL_PASSWORD");
    assert!(!format!("{}{}", said.stdout(), said.stderr()).contains("hunter2"));
}

#[test]
fn nothing_is_sent_unencrypted_to_another_machine() {
    world().run(["locks", "--store", "etcd://etcd.example"]).code(2).says("unencrypted").says("etcds://");
}

#[test]
fn members_that_are_not_there_are_exit_69() {
    let world = world();
    let address = "etcd://127.0.0.1:1,localhost:2";
    let said = world.run(["exec", "db", "--store", address, "--", "touch", "ran"]).code(69);
    said.says("etcd://127.0.0.1:1,localhost:2");
    assert!(!world.path("ran").exists());
}
