//! The OpenAPI description.

use std::collections::BTreeSet;

use lockkeeper_testing::http::Http;
use serde_json::{Value, json};

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

/// Adds the place of every object of which nothing is said.
fn bare_objects(value: &Value, place: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let says = |key: &str| map.contains_key(key);
            if value["type"] == "object" && !says("properties") && !says("additionalProperties") {
                found.push(place.to_owned());
            }
            map.iter().for_each(|(key, value)| bare_objects(value, &format!("{place}/{key}"), found));
        }
        Value::Array(list) => list.iter().for_each(|value| bare_objects(value, place, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_body_has_a_type_with_fields() {
    let document = Server::start().get("/api/openapi.json").expect(200);
    let mut found = Vec::new();
    bare_objects(&document, "", &mut found);
    assert_eq!(found, [""; 0]);
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, call) in item.as_object().unwrap() {
            for (status, answer) in call["responses"].as_object().unwrap() {
                let content = answer["content"].as_object();
                let schema = content.and_then(|content| content.values().next()).map(|one| &one["schema"]);
                assert!(schema.is_some_and(Value::is_object), "{method} {path} {status}");
            }
        }
    }
    for name in ["Run", "Request", "Event", "StreamEvent", "Diagnosis"] {
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}

#[test]
fn every_call_says_how_it_is_refused_without_a_token_and_to_others() {
    let document = Server::start().get("/api/openapi.json").expect(200);
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert_eq!(document["security"], json!([{ "token": [] }]));
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, call) in item.as_object().unwrap() {
            let refused = &call["responses"];
            assert_eq!(refused["401"].is_object(), path != "/healthz", "{method} {path}");
            assert!(refused["403"].is_object(), "{method} {path}");
        }
    }
}

/// An example that the server refuses teaches the wrong thing.
#[test]
fn every_body_that_is_sent_has_an_example_and_the_server_understands_it() {
    let server = Server::start();
    let document = server.get("/api/openapi.json").expect(200);
    let mut sent = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let body = &item["post"]["requestBody"]["content"]["application/json"]["schema"];
        let Some(reference) = body["$ref"].as_str() else { continue };
        let example = &document.pointer(&reference[1..]).unwrap()["example"];
        assert!(example.is_object(), "{path}");
        let id = if path.starts_with("/api/locks") { "L9" } else { "RUN-9" };
        let answer = server.post(&path.replace("{id}", id), example);
        assert!(matches!(answer.status, 200..=202 | 404 | 409), "{path}: {answer:?}");
        sent += 1;
    }
    assert!(sent >= 8, "{sent}");
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
