//! The page for operators: four files that are compiled into the program.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::OPENAPI;

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

pub(crate) async fn index() -> Response {
    file("text/html; charset=utf-8", include_str!("../assets/index.html"))
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../assets/app.js"))
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../assets/style.css"))
}

pub(crate) async fn icon() -> Response {
    file("image/svg+xml", include_str!("../assets/icon.svg"))
}

pub(crate) async fn openapi() -> Response {
    file("application/json", OPENAPI)
}
