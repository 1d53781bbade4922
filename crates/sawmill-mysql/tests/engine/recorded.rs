//! The tables of an earlier version, with their rows, made again in another database.

use std::fs;
use std::path::Path;

use async_trait::async_trait;
use mysql_async::Row;
use mysql_async::prelude::Queryable;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::recorded::{Recorded, check};
use sawmill_mysql::MysqlEngine;

use crate::support::{Database, database_for};

const FILE: &str = "tables.sql";
/// Ends a statement. No row contains it.
const END: &str = ";\n\n";

#[async_trait]
impl Recorded for Database {
    fn options(&self) -> OpenOptions {
        Sawmill::options().engine(MysqlEngine)
    }
    fn url(&self) -> String {
        self.url()
    }
    async fn save(&self, folder: &Path) {
        let mut connection = self.plain_connection().await;
        let mut dump = String::new();
        let tables: Vec<String> = connection.query("SHOW TABLES").await.unwrap();
        for table in tables {
            let create: Option<(String, String)> =
                connection.query_first(format!("SHOW CREATE TABLE `{table}`")).await.unwrap();
            dump += &format!("{}{END}", create.unwrap().1);
            let rows: Vec<Row> = connection.query(format!("SELECT * FROM `{table}`")).await.unwrap();
            for row in rows {
                let values: Vec<String> = row.unwrap().iter().map(|value| value.as_sql(false)).collect();
                dump += &format!("INSERT INTO `{table}` VALUES ({}){END}", values.join(", "));
            }
        }
        fs::write(folder.join(FILE), dump).unwrap();
    }
    async fn load(&self, folder: &Path) {
        let dump = fs::read_to_string(folder.join(FILE)).unwrap();
        let mut connection = self.plain_connection().await;
        for statement in dump.split_terminator(END) {
            connection.query_drop(statement).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_of_an_earlier_version_go_on() {
    let Some(database) = database_for("the_tables_of_an_earlier_version_go_on").await else { return };
    check(&database, Path::new("tests/recorded/f99b6a3")).await;
}
