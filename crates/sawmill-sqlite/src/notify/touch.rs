//! Notifies other processes of a commit by setting the time of a file beside the database.
//!
//! SQLite writes these files before a commit becomes visible, so its own writes would wake others too early;
//! the touch comes after. The write-ahead log is touched for messages and its index for ledger entries, so a
//! worker's heartbeat does not make others look for messages. A touch opens no file, because closing one
//! would drop SQLite's locks.

use std::io;
use std::path::Path;

use crate::notify::notifier::Written;

#[cfg(target_os = "linux")]
pub(crate) use linux::{Listener, Toucher};
#[cfg(not(target_os = "linux"))]
pub(crate) use unsupported::{Listener, Toucher};

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::CString;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
    use rustix::io::Errno;

    use sawmill_engine::runtime::{Clock, Moment, SystemClock};

    use super::{Path, Written, io};

    /// The minimum time between reports when touches are frequent: several touches are reported as one.
    const PAUSE: Duration = Duration::from_millis(5);

    /// The files to touch.
    #[derive(Clone)]
    pub(crate) struct Toucher {
        messages: CString,
        entries: CString,
    }

    impl Toucher {
        /// Touches the files of the open database at this path.
        pub(crate) fn new(path: &Path) -> io::Result<Self> {
            // SQLite names its side files after the resolved path too.
            let path = path.canonicalize()?;
            let beside =
                |ending: &str| CString::new([path.as_os_str().as_bytes(), ending.as_bytes()].concat());
            Ok(Self { messages: beside("-wal")?, entries: beside("-shm")? })
        }

        pub(crate) fn touch(&self, written: Written) {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let now = Timestamps { last_access: now, last_modification: now };
            for (touched, file) in [(written.messages, &self.messages), (written.entries, &self.entries)] {
                if touched {
                    // Notifications may be lost.
                    let _ = utimensat(CWD, file, &now, AtFlags::empty());
                }
            }
        }
    }

    /// A thread that reports touches, including those of this process. Dropping it ends the thread.
    pub(crate) struct Listener {
        inotify: Arc<OwnedFd>,
        watches: [i32; 2],
        thread: Option<JoinHandle<()>>,
    }

    impl Listener {
        pub(crate) fn start(
            toucher: &Toucher,
            mut on_touch: impl FnMut(Written) + Send + 'static,
        ) -> io::Result<Self> {
            let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
            let watch = |file: &CString| inotify::add_watch(&inotify, file.as_c_str(), WatchFlags::ATTRIB);
            let watches = [watch(&toucher.messages)?, watch(&toucher.entries)?];
            let (listening, [messages, entries]) = (inotify.clone(), watches);
            let thread =
                thread::Builder::new().name("sawmill-sqlite-listener".to_owned()).spawn(move || {
                    let mut buffer = [MaybeUninit::uninit(); 1024];
                    let mut touches = Reader::new(&*listening, &mut buffer);
                    let mut watches = 2;
                    let mut last = Moment::default();
                    while watches > 0 {
                        let mut written = Written::default();
                        loop {
                            match touches.next() {
                                // The watch was removed, by drop or with its file.
                                Ok(touch) if touch.events().contains(ReadFlags::IGNORED) => watches -= 1,
                                Ok(touch) => {
                                    written.messages |= touch.wd() == messages;
                                    written.entries |= touch.wd() == entries;
                                    if touch.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                                        written = Written::ANYTHING;
                                    }
                                }
                                Err(Errno::INTR) => {}
                                Err(_) => return,
                            }
                            if touches.is_buffer_empty() {
                                break;
                            }
                        }
                        if written != Written::default() {
                            on_touch(written);
                            // A single touch causes no second wake-up.
                            let now = SystemClock.now();
                            if now.since(last) < 2 * PAUSE {
                                thread::park_timeout(PAUSE);
                            }
                            last = SystemClock.now();
                        }
                    }
                })?;
            Ok(Self { inotify, watches, thread: Some(thread) })
        }
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            for watch in self.watches {
                // The watch may be gone with its file; the thread has counted that.
                let _ = inotify::remove_watch(&self.inotify, watch);
            }
            if let Some(thread) = self.thread.take() {
                thread.thread().unpark();
                let _ = thread.join();
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod unsupported {
    use super::{Path, Written, io};

    /// Touches cannot be reported on this system.
    #[derive(Clone)]
    pub(crate) struct Toucher;

    impl Toucher {
        pub(crate) fn new(_: &Path) -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) fn touch(&self, _: Written) {}
    }

    pub(crate) struct Listener;

    impl Listener {
        pub(crate) fn start(_: &Toucher, _: impl FnMut(Written) + Send + 'static) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}
