//! The OpenAPI description.

use std::collections::BTreeSet;

use lockkeeper_testing::http::Http;
use serde_json::Value;

use super::server::Server;

/// Every reference in a value.
fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_description_is_openapi_3_1_and_whole() {
    let server = Server::start();
    let document = server.get("/api/openapi.json").expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/Error"), "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn every_call_is_described_with_what_it_answers() {
    let server = Server::start();
    let document = server.get("/api/openapi.json").expect(200);
    let paths = document["paths"].as_object().unwrap();
    let mut names = BTreeSet::new();
    for (path, item) in paths {
        for (method, call) in item.as_object().unwrap() {
            assert!(call["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}");
            assert!(!call["responses"].as_object().unwrap().is_empty(), "{method} {path}");
            assert!(
                names.insert(call["operationId"].as_str().unwrap().to_owned()),
                "{method} {path} has the name of another"
            );
        }
    }
    for path in ["/api/locks", "/api/locks/{id}", "/api/locks/{id}/renew", "/api/conflicts", "/api/events"] {
        assert!(paths.contains_key(path), "{path}");
    }
}
