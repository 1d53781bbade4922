//! The table of all routes, with the access and the handler of each. The router, the guard and the test of
//! the API description use it.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post, put};
use sawmill::admin::Access::{Admin, Read, Write};

use crate::answer::Problem;
use crate::guard::{self, Need};
use crate::{App, dead, events, groups, metrics, page, push, session, topics};

/// A route, the access it needs and its handler.
struct Route {
    method: &'static str,
    path: &'static str,
    need: Need,
    handler: MethodRouter<Arc<App>>,
}

macro_rules! routes {
    ($($method:ident $path:literal $need:expr => $handler:expr;)*) => {
        vec![$(Route { method: stringify!($method), path: $path, need: $need, handler: $method($handler) }),*]
    };
}

#[rustfmt::skip]
fn all() -> Vec<Route> {
    let (open, read, write, admin) = (Need::Nothing, Need::Access(Read), Need::Access(Write), Need::Access(Admin));
    routes! {
        get "/api/v1/topics" read => topics::list;
        get "/api/v1/topics/{topic}" read => topics::show;
        put "/api/v1/topics/{topic}" admin => topics::create;
        delete "/api/v1/topics/{topic}" admin => topics::delete;
        get "/api/v1/topics/{topic}/messages" read => topics::peek;
        post "/api/v1/topics/{topic}/messages" write => push::push;
        get "/api/v1/topics/{topic}/groups" read => groups::list;
        get "/api/v1/topics/{topic}/groups/{group}" read => groups::show;
        post "/api/v1/topics/{topic}/groups/{group}/pull" read => crate::pull::pull;
        post "/api/v1/topics/{topic}/jobs/{receipt}/done" read => crate::pull::done;
        post "/api/v1/topics/{topic}/jobs/{receipt}/failed" read => crate::pull::failed;
        post "/api/v1/topics/{topic}/jobs/{receipt}/extend" read => crate::pull::extend;
        post "/api/v1/topics/{topic}/groups/{group}/pause" admin => groups::pause;
        post "/api/v1/topics/{topic}/groups/{group}/resume" admin => groups::resume;
        post "/api/v1/topics/{topic}/groups/{group}/replay" admin => groups::replay;
        get "/api/v1/topics/{topic}/groups/{group}/dead" read => dead::list;
        get "/api/v1/topics/{topic}/groups/{group}/dead/{id}" read => dead::show;
        post "/api/v1/topics/{topic}/groups/{group}/dead/retry" admin => dead::retry;
        post "/api/v1/topics/{topic}/groups/{group}/dead/drop" admin => dead::drop;
        get "/api/v1/status" read => groups::status;
        get "/api/v1/workers" read => groups::workers;
        get "/api/v1/events" read => events::events;
        get "/api/v1/session" open => session::show;
        post "/api/v1/session" open => session::login;
        delete "/api/v1/session" open => session::logout;
        get "/metrics" Need::Everywhere(Read) => metrics::metrics;
        get "/healthz" open => metrics::health;
        get "/openapi.json" open => page::openapi;
        get "/" open => page::index;
        get "/assets/app.js" open => page::script;
        get "/assets/style.css" open => page::style;
        get "/assets/icon.svg" open => page::icon;
    }
}

/// The methods and paths of all routes.
pub(crate) fn names() -> Vec<(&'static str, &'static str)> {
    all().iter().map(|route| (route.method, route.path)).collect()
}

pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for Route { path, need, handler, .. } in all() {
        let authorize = from_fn_with_state((app.clone(), need), guard::authorize);
        router = router.route(path, handler.route_layer(authorize));
    }
    router
        .fallback(|| async {
            Problem::not_found("there is nothing here", "look at /openapi.json for what there is")
        })
        .method_not_allowed_fallback(|| async {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this cannot be done here",
                "use a method that /openapi.json names",
            )
        })
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), guard::authenticate))
        .with_state(app)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q21_what_a_route_needs_is_what_its_description_says() {
        let document: serde_json::Value = serde_json::from_str(crate::OPENAPI).unwrap();
        for Route { method, path, need, .. } in all() {
            let access = match need {
                Need::Nothing => "open",
                Need::Access(access) | Need::Everywhere(access) => access.name(),
            };
            assert_eq!(document["paths"][path][method]["x-access"], access, "{method} {path}");
        }
    }
}
