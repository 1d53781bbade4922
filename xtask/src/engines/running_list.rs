//! Lists the running servers that were started here, in a small file that outlives this program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sawmill_servers::{Kind, Running};

fn line(server: &Running) -> String {
    format!("{}\t{}\t{}\t{}", server.kind.name(), server.pid, server.folder.display(), server.url)
}

fn of_line(line: &str) -> Option<Running> {
    let mut parts = line.split('\t');
    let (kind, pid, folder, url) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (kind, pid) = (Kind::named(kind)?, pid.parse().ok()?);
    Some(Running { kind, pid, folder: folder.into(), url: url.to_owned() })
}

/// The file, with one line per server.
pub(crate) struct RunningList(PathBuf);

impl RunningList {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn all(&self) -> io::Result<Vec<Running>> {
        Ok(read(&self.0)?.lines().filter_map(of_line).collect())
    }

    pub(crate) fn add(&self, server: &Running) -> io::Result<()> {
        fs::write(&self.0, format!("{}{}\n", read(&self.0)?, line(server)))
    }

    pub(crate) fn remove(&self, server: &Running) -> io::Result<()> {
        let others = self.all()?.into_iter().filter(|other| other != server);
        fs::write(&self.0, others.map(|other| line(&other) + "\n").collect::<String>())
    }
}

fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(pid: u32, folder: &Path) -> Running {
        let url = "postgres://a:b@127.0.0.1:1/c".to_owned();
        Running { kind: Kind::Postgres, pid, folder: folder.to_owned(), url }
    }

    #[test]
    fn what_is_added_is_read_until_it_is_removed() {
        let path = std::env::temp_dir().join(format!("running_list-{}", std::process::id()));
        let running_list = RunningList::at(path.clone());
        assert_eq!(running_list.all().unwrap(), []);
        let servers = [server(1, Path::new("/some where")), server(2, Path::new("/elsewhere"))];
        servers.iter().for_each(|server| running_list.add(server).unwrap());
        assert_eq!(running_list.all().unwrap(), servers);
        running_list.remove(&servers[0]).unwrap();
        assert_eq!(running_list.all().unwrap(), servers[1..]);
        fs::remove_file(path).unwrap();
    }
}
