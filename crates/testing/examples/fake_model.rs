use lockkeeper_testing::{FakeModel, http::Http};
fn main() {
    let model = FakeModel::start();
    println!("{}", model.url(""));
    let mut line = String::new();
    let mut n = 0;
    loop {
        line.clear();
        if std::io::stdin().read_line(&mut line).unwrap() == 0 { return; }
        if let Some(gate) = line.trim().strip_prefix("open ") { model.open(gate); }
        let asked = model.asked();
        for a in &asked[n..] { println!("=== {}\n{}", a.path, serde_json::to_string(&a.body).unwrap()); }
        n = asked.len();
    }
}
