//! The settings of a store that several machines share.

use lockkeeper_testing::World;

fn world() -> World {
    World::new(env!("CARGO_BIN_EXE_lockkeeper"))
}

#[test]
fn a_shared_store_needs_a_project() {
    let world = world().set("LOCKKEEPER_STORE", "postgres://me@localhost/locks");
    world.run(["locks"]).code(2).says("needs the name of a project").says("project = \"NAME\"");
    world.run(["locks", "--store", "postgres://me@localhost/locks"]).code(2);
}

#[test]
fn a_password_in_arguments_or_files_is_refused_and_not_shown() {
    let world = world()
        .write("lockkeeper.toml", "store = \"postgres://me:hunter2@localhost/locks\"\nproject = \"p\"\n");
    for args in [&["locks"][..], &["locks", "--store", "postgres://me:hunter2@h/locks"]] {
        let said = world.run(args).code(2).says("contains a password").says("~/.pgpass");
        assert!(!format!("{}{}", said.stdout(), said.stderr()).contains("hunter2"));
    }
}

#[test]
fn a_store_of_an_unknown_kind_is_refused_without_its_password() {
    let world = world();
    for address in ["postgre://me:hunter2@h/locks", "Postgres://me:hunter2@h/x", "host=h password=hunter2"] {
        let said = world.run(["locks", "--store", address]).code(2).says("is not a store");
        assert!(!format!("{}{}", said.stdout(), said.stderr()).contains("hunter2"), "{address}");
    }
    world.run(["locks", "--store", "mysql:x"]).code(2).says("`mysql:x` is not a store");
}

#[test]
fn nothing_is_sent_unencrypted_to_another_machine() {
    let world = world().set("LOCKKEEPER_PROJECT", "p");
    let address = "postgres://me@db.example/locks?sslmode=disable";
    world.run(["locks", "--store", address]).code(2).says("unencrypted").says("verify-full");
}

#[test]
fn a_server_that_is_not_there_is_exit_69() {
    let world = world().set("LOCKKEEPER_PROJECT", "p");
    let address = "postgres://me@127.0.0.1:1/locks";
    world
        .run(["exec", "db", "--store", address, "--", "touch", "ran"])
        .code(69)
        .says("postgres://127.0.0.1:1/locks");
    assert!(!world.path("ran").exists());
}

/// A session that cannot be renewed before its commands have to be stopped would stop every command.
#[test]
fn a_session_that_does_not_fit_grace_is_refused() {
    let world =
        world().set("LOCKKEEPER_PROJECT", "p").set("LOCKKEEPER_STORE", "postgres://me@127.0.0.1:1/locks");
    for args in [&["exec", "db", "--", "touch", "ran"][..], &["work", "--drain"]] {
        let refused = world.lockkeeper(args).env("LOCKKEEPER_SESSION", "17s").output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("`session` of 17s is too short for a `grace` of 10s"), "{said}");
        assert!(said.contains("set `session` to 18s or more, or `grace` to 9s or less"), "{said}");
        let fits = world.lockkeeper(args).env("LOCKKEEPER_SESSION", "18s").output().unwrap();
        assert_eq!(fits.status.code(), Some(69), "{fits:?}");
    }
    assert!(!world.path("ran").exists());
}
