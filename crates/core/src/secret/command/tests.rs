//! Claims about what is hidden in a command line, and what is not.

use super::*;

#[track_caller]
fn check(words: &[&str], expected: &[&str]) {
    assert_eq!(shown_command(words), expected);
}

#[test]
fn values_of_secret_flags_and_variables_are_hidden() {
    check(&["x", "--password=abc", "--verbose"], &["x", "--password=***", "--verbose"]);
    check(&["x", "--token", "abc", "file"], &["x", "--token", "***", "file"]);
    check(&["x", "-password", "abc"], &["x", "-password", "***"]);
    check(&["env", "FOO_TOKEN=abc", "A=b", "make"], &["env", "FOO_TOKEN=***", "A=b", "make"]);
    check(&["x", "--password=a&b;c d", "A_TOKEN=\"a;b\""], &["x", "--password=***", "A_TOKEN=***"]);
    check(&["x", "--set", "db.password=abc"], &["x", "--set", "db.password=***"]);
    check(&["curl", "-u", "me:abc", "host"], &["curl", "-u", "me:***", "host"]);
    check(&["curl", "-ume:abc", "host"], &["curl", "-ume:***", "host"]);
    check(
        &["curl", "--user=me:abc", "--proxy-user=me:abc"],
        &["curl", "--user=me:***", "--proxy-user=me:***"],
    );
    check(&["sort", "-u", "-uroot"], &["sort", "-u", "-uroot"]);
}

#[test]
fn headers_are_hidden() {
    check(&["curl", "-H", "Authorization: Bearer abc"], &["curl", "-H", "Authorization: ***"]);
    check(&["curl", "--header=X-Api-Key: abc"], &["curl", "--header=X-Api-Key: ***"]);
    check(&["curl", "-H", "Cookie: a=1; b=2"], &["curl", "-H", "Cookie: ***"]);
    check(&["curl", "-H", "X-Auth-Token:abc"], &["curl", "-H", "X-Auth-Token: ***"]);
    check(&["curl", "--header=authorization:Basic abc"], &["curl", "--header=authorization: ***"]);
    check(&["docker", "run", "my-secret:latest", "x-y:1"], &["docker", "run", "my-secret:latest", "x-y:1"]);
    check(&["x", "Bearer", "abc"], &["x", "Bearer", "***"]);
    check(&["x", "Bearer abc"], &["x", "Bearer ***"]);
    check(&["sh", "-c", "curl -H 'Authorization: Basic abc'"], &["sh", "-c", "curl -H 'Authorization: ***'"]);
    check(&["x", "Authorization:", "Basic", "abc", "y"], &["x", "Authorization:", "Basic", "***", "y"]);
    check(&["x", "Authorization:", "abc", "y"], &["x", "Authorization:", "***", "y"]);
    // The quote is not closed.
    check(&["sh", "-c", "x \"Authorization: Basic abc"], &["sh", "-c", "x \"Authorization: Basic ***"]);
}

#[test]
fn passwords_in_urls_and_queries_are_hidden() {
    check(&["git", "clone", "https://me:abc@host/x"], &["git", "clone", "https://me:***@host/x"]);
    check(&["git", "push", "https://ghp_0123456789abcdef@host"], &["git", "push", "https://***@host"]);
    check(&["x", "--db=postgres://me:a@b:c@host/x"], &["x", "--db=postgres://me:***@host/x"]);
    check(&["curl", "https://host/?a=1&token=abc&b=2"], &["curl", "https://host/?a=1&token=***&b=2"]);
    check(&["x", "-d", r#"{"user":"me","password":"abc"}"#], &["x", "-d", r#"{"user":"me","password":***}"#]);
    check(&["x", r#"{"password": "a,b c", "x": 1}"#], &["x", r#"{"password": ***"#]);
    check(
        &["sh", "-c", r#"x -d "{\"password\":\"a;b\"}" y"#],
        &["sh", "-c", r#"x -d "{\"password\":***}" y"#],
    );
}

#[test]
fn scripts_are_commands_as_well() {
    let script = r#"A_TOKEN="a b" x --password 'c d' && curl -H "Authorization: Bearer e" http://f:g@h"#;
    let shown = r#"A_TOKEN=*** x --password *** && curl -H "Authorization: ***" http://f:***@h"#;
    check(&["sh", "-c", script], &["sh", "-c", shown]);
    assert_eq!(shown_line(script), shown);
    check(&["sh", "-c", "ssh h 'x --token=abc  y'"], &["sh", "-c", "ssh h 'x --token=***  y'"]);
    check(&["bash", "-ec", "A_TOKEN=x make"], &["bash", "-ec", "A_TOKEN=*** make"]);
    check(&["sh", "-c", "sh -c 'A_TOKEN=x make' y"], &["sh", "-c", "sh -c 'A_TOKEN=*** make' y"]);
    check(&["sh", "-c", "x --password 'a b'"], &["sh", "-c", "x --password ***"]);
    check(&["sh", "-c", "'x' --password \"a b\""], &["sh", "-c", "'x' --password ***"]);
    check(&["sh", "-c", "PGPASSWORD='a b' psql 'x'"], &["sh", "-c", "PGPASSWORD=*** psql 'x'"]);
    check(&["env", "A_PASSWORD=correct horse"], &["env", "A_PASSWORD=***"]);
    check(&["sh", "-c", "a='x --token abc' b"], &["sh", "-c", "a='x --token ***' b"]);
    check(&["sh", "-c", "echo don't --token abc"], &["sh", "-c", "echo don't --token ***"]);
}

#[test]
fn tokens_of_well_known_services_are_hidden_wherever_they_are() {
    let digits = "0123456789abcdefghij0123456789";
    for begin in ["ghp_", "github_pat_", "glpat-", "sk-", "sk-ant-", "xoxb-", "npm_"] {
        let token = format!("{begin}{digits}");
        let hidden = if begin.starts_with("sk-") { "sk-***".to_owned() } else { format!("{begin}***") };
        check(&["x", &token, "y"], &["x", &hidden, "y"]);
        check(&["x", &format!("a={token},b")], &["x", &format!("a={hidden},b")]);
        check(&["sh", "-c", &format!("x '{token}' y")], &["sh", "-c", &format!("x '{hidden}' y")]);
    }
    check(&["aws", "AKIAIOSFODNN7EXAMPLE"], &["aws", "AKIA***"]);
    for harmless in
        ["sk-learn-with-very-many-words-behind-it", "ghp_short", "AKIA", "task-0123456789abcdefghij"]
    {
        check(&["x", harmless], &["x", harmless]);
    }
}

#[test]
fn passwords_behind_a_short_flag_of_a_known_program_are_hidden() {
    check(&["sshpass", "-p", "abc", "ssh", "-p", "22"], &["sshpass", "-p", "***", "ssh", "-p", "22"]);
    check(&["redis-cli", "-h", "x", "-a", "abc", "GET"], &["redis-cli", "-h", "x", "-a", "***", "GET"]);
    check(
        &["docker", "login", "-u", "me", "-p", "abc", "host"],
        &["docker", "login", "-u", "me", "-p", "***", "host"],
    );
    check(&["docker", "run", "-p", "80:80", "x"], &["docker", "run", "-p", "80:80", "x"]);
    check(&["mongosh", "-p", "abc"], &["mongosh", "-p", "***"]);
    check(&["sh", "-c", "sshpass -p 'a b' ssh h"], &["sh", "-c", "sshpass -p *** ssh h"]);
    check(&["mysql", "-p", "db"], &["mysql", "-p", "db"]);
    check(&["mysql", "-u", "root", "-psecret", "db"], &["mysql", "-u", "root", "-p***", "db"]);
    check(&["/usr/bin/mysqldump", "-psecret"], &["/usr/bin/mysqldump", "-p***"]);
    check(&["sudo", "mariadb", "-psecret", "-P3306"], &["sudo", "mariadb", "-p***", "-P3306"]);
    check(&["sh", "-c", "mysql -psecret; mkdir -p/a"], &["sh", "-c", "mysql -p***; mkdir -p/a"]);
    check(&["sh", "-c", "mysql -p; mkdir -pv a"], &["sh", "-c", "mysql -p; mkdir -pv a"]);
    for harmless in [["mkdir", "-p/a/b"], ["psql", "-p5432"], ["nc", "-port"]] {
        check(&harmless, &harmless);
    }
}

/// The submitter of a request chooses its command, so the input may be hostile.
#[test]
fn no_text_is_too_strange_or_too_long() {
    for piece in [
        "'",
        "\"",
        "'\"",
        "'x' ",
        "=",
        "token=",
        "\"token\":",
        "://@",
        "a://b:c@",
        "\\",
        "{'",
        "é=",
        "--token ",
        ": ",
    ] {
        let text = piece.repeat(20_000);
        assert!(shown_line(&text).len() <= 4 * text.len() + 3 && shown_command(&[text.as_str()]).len() == 1);
    }
}

proptest::proptest! {
    #[test]
    fn a_secret_is_hidden_beside_whatever_else(before in "[-a-z'\" =:;&{}é\\\\]{0,12}", after in "[-a-z'\" =:;&{}é]{0,12}") {
        let shown = shown_command(&[before.as_str(), "--password=HUSH&HUSH", "--token", "HUSH'HUSH", after.as_str()]);
        proptest::prop_assert!(!shown.concat().contains("HUSH"), "{shown:?}");
        shown_line(&format!("{before} {after}"));
    }
}

#[test]
fn everything_else_is_shown_as_it_is() {
    for word in [
        "",
        "-",
        "--",
        "a:b@c",
        "http://host:80/a@b:c",
        "http://me@host/",
        "--author=me",
        "--no-token",
        "--keyboard=de",
        "auth:login",
        "/run/secrets:/x",
        "don't",
        "'",
        "a = b  \n c",
        "翻译 README",
        "password",
        "--token=",
    ] {
        check(&["x", word, "y"], &["x", word, "y"]);
    }
    check(&["x", "--token-file", "a", "--no-token", "b"], &["x", "--token-file", "a", "--no-token", "b"]);
    check(&["x", "--token", "--verbose"], &["x", "--token", "--verbose"]);
}
