use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::address::{AddressRefused, Allowance};

/// Looks names up and hands on only the addresses that are allowed.
///
/// The connector connects to exactly what comes out of here, so there is no second look-up that could give
/// another answer ("DNS rebinding").
pub(crate) struct GuardedResolver {
    pub(crate) allowance: Arc<Allowance>,
    pub(crate) lookup: Lookup,
}

/// Asks for the addresses of a name. May block.
pub(crate) type Lookup = Arc<dyn Fn(&str) -> std::io::Result<Vec<IpAddr>> + Send + Sync>;

/// The operating system's way to look a name up.
pub(crate) fn system_lookup() -> Lookup {
    Arc::new(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
}

impl GuardedResolver {
    fn allowed(allowance: &Allowance, addresses: Vec<IpAddr>) -> Result<Vec<SocketAddr>, AddressRefused> {
        let mut refusal = None;
        let mut allowed = Vec::with_capacity(addresses.len());
        for address in addresses {
            match allowance.check(address) {
                // The connector puts the port of the URL in.
                Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                Err(refused) => refusal = Some(refused),
            }
        }
        match refusal {
            Some(refused) if allowed.is_empty() => Err(refused),
            _ => Ok(allowed),
        }
    }
}

impl fmt::Debug for GuardedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedResolver").field("allowance", &self.allowance).finish_non_exhaustive()
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowance = Arc::clone(&self.allowance);
        let lookup = Arc::clone(&self.lookup);
        Box::pin(async move {
            let found = tokio::task::spawn_blocking(move || lookup(name.as_str())).await??;
            let allowed = Self::allowed(&allowance, found)?;
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok::<_, Box<dyn Error + Send + Sync>>(addresses)
        })
    }
}
