//! A user's identities, one for each volume of a server because roles belong to volumes, and the
//! servers behind URLs.
//!
//! ```text
//! identities/CA-FINGERPRINT/VOLUME/key.pem, cert.pem     the identity for that volume
//! identities/CA-FINGERPRINT/VOLUME/role                  what it was allowed to do when enrolled
//! identities/known/HOST:PORT,VOLUME                      CA fingerprint, from the first mount
//! ```

use std::path::{Path, PathBuf};

use segue_core::nouns::Role;

use super::{DamagedPem, Identity, IdentityError, KeyRequest, MountUrl, files, url};

fn role_in(path: &Path) -> Result<Option<Role>, IdentityError> {
    let Some(bytes) = files::read(path)? else { return Ok(None) };
    let known = [Role::Reader, Role::Writer, Role::Host];
    let role = known.into_iter().find(|role| bytes.trim_ascii() == role_word(*role).as_bytes());
    role.map(Some).ok_or_else(|| IdentityError::damaged(path, "not a role"))
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Reader => "reader",
        Role::Writer => "writer",
        Role::Host => "host",
    }
}

/// The directory of a user's identities.
#[derive(Clone, Debug)]
pub struct Identities {
    directory: PathBuf,
}

impl Identities {
    /// In `directory`, which need not exist: `$XDG_CONFIG_HOME/segue/identities`.
    pub fn at(directory: impl Into<PathBuf>) -> Identities {
        Identities { directory: directory.into() }
    }

    /// The identity for `volume` of the server whose authority has this fingerprint, if
    /// enrolled there.
    pub fn load(&self, authority: &str, volume: &str) -> Result<Option<Identity>, IdentityError> {
        let directory = self.of(authority, volume)?;
        let (key_path, certificate_path) = (directory.join("key.pem"), directory.join("cert.pem"));
        let Some(certificate) = files::read(&certificate_path)? else { return Ok(None) };
        let key = files::read(&key_path)?
            .ok_or_else(|| IdentityError::damaged(&key_path, "the key is missing"))?;
        let identity = Identity::from_pem(&certificate, &key).map_err(|damaged| match damaged {
            DamagedPem::Certificate(words) => IdentityError::damaged(&certificate_path, words),
            DamagedPem::Key(words) => IdentityError::damaged(&key_path, words),
        })?;
        Ok(Some(Identity { role: role_in(&directory.join("role"))?, ..identity }))
    }

    /// Keeps a key with the certificate that a server gave for it, and its role.
    pub(crate) fn store(
        &self,
        (authority, volume): (&str, &str),
        request: &KeyRequest,
        certificate_pem: &str,
        role: Role,
    ) -> Result<Identity, IdentityError> {
        let key = request.key_pem();
        let identity =
            Identity::from_pem(certificate_pem.as_bytes(), key.as_bytes()).map_err(|damaged| {
                let (DamagedPem::Certificate(words) | DamagedPem::Key(words)) = damaged;
                IdentityError::Invalid { what: "certificate from the server", words }
            })?;
        let directory = self.of(authority, volume)?;
        files::make_directory(&directory)?;
        // The certificate last: with it the identity exists.
        files::write(&directory.join("key.pem"), key.as_bytes())?;
        files::write(&directory.join("role"), format!("{}\n", role_word(role)).as_bytes())?;
        files::write(&directory.join("cert.pem"), certificate_pem.as_bytes())?;
        Ok(Identity { role: Some(role), ..identity })
    }

    /// The authority of a server from an earlier mount.
    pub fn lookup(&self, url: &MountUrl) -> Result<Option<String>, IdentityError> {
        let path = self.known(url);
        let Some(bytes) = files::read(&path)? else { return Ok(None) };
        let authority = String::from_utf8_lossy(&bytes).trim().to_owned();
        if !url::is_fingerprint(&authority) {
            return Err(IdentityError::damaged(&path, "not a fingerprint"));
        }
        Ok(Some(authority))
    }

    /// Remembers which authority is behind a URL.
    pub fn remember(&self, url: &MountUrl, authority: &str) -> Result<(), IdentityError> {
        files::make_directory(&self.directory.join("known"))?;
        files::write(&self.known(url), format!("{authority}\n").as_bytes())
    }

    fn of(&self, authority: &str, volume: &str) -> Result<PathBuf, IdentityError> {
        if !url::is_fingerprint(authority) {
            let words = authority.to_owned();
            return Err(IdentityError::Invalid { what: "fingerprint", words });
        }
        Ok(self.directory.join(authority).join(volume))
    }

    /// A URL's host and volume hold no '/', so they can name a file.
    fn known(&self, url: &MountUrl) -> PathBuf {
        self.directory.join("known").join(format!("{},{}", url.address(), url.volume()))
    }
}
