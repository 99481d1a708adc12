//! What the plugins before this one have made, as `prevResult` says it.

use crate::attachment::Mac;
use crate::environment::{Container, is_interface};
use crate::error::{CniError, Code};
use serde_json::Value;
use std::net::IpAddr;

/// The pod's end of its network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodEnd {
    /// None if the result does not say it.
    pub mac: Option<Mac>,
    /// The addresses of this interface.
    pub addresses: Vec<IpAddr>,
    /// Interfaces of the host that may be the other end, the likeliest first. The kernel knows better where it can be
    /// asked.
    pub host: Vec<String>,
}

/// An interface of a result.
struct Interface<'r> {
    name: &'r str,
    mac: &'r str,
    /// The network namespace; empty for the host's.
    sandbox: &'r str,
}

impl PodEnd {
    pub fn read(result: &Value, container: &Container) -> Result<Self, CniError> {
        let interfaces = list(result, "interfaces")?.iter().map(Interface::read).collect::<Result<Vec<_>, _>>()?;
        let is_pod = |one: &Interface<'_>| !one.sandbox.is_empty() && one.name == container.id.interface;
        let is_here = |one: &Interface<'_>| is_pod(one) && *one.sandbox == *container.namespace.to_string_lossy();
        let end = interfaces.iter().position(is_here).or_else(|| interfaces.iter().position(is_pod));
        let mut addresses = Vec::new();
        for ip in list(result, "ips")? {
            let of = match &ip["interface"] {
                Value::Null => None,
                number => Some(index(number, interfaces.len())?),
            };
            // Without a number an address is the container's.
            if of.is_none() || of == end {
                addresses.push(address(&ip["address"])?);
            }
        }
        let mac = end.map(|at| interfaces[at].mac).filter(|mac| !mac.is_empty());
        let mac = mac.map(str::parse).transpose().map_err(|error| wrong("interfaces", &error))?;
        // `bridge` lists the bridge first and then the host's end; `ptp` and Calico only the host's end.
        let of_host = interfaces.iter().rev().filter(|one| one.sandbox.is_empty() && is_interface(one.name));
        Ok(Self { mac, addresses, host: of_host.map(|one| one.name.to_owned()).collect() })
    }
}

impl<'r> Interface<'r> {
    fn read(value: &'r Value) -> Result<Self, CniError> {
        let text = |key: &str| match &value[key] {
            Value::Null => Ok(""),
            Value::String(text) => Ok(text.as_str()),
            other => Err(wrong("interfaces", &format_args!("`{key}` is {other}; use a text"))),
        };
        Ok(Self { name: text("name")?, mac: text("mac")?, sandbox: text("sandbox")? })
    }
}

fn wrong(key: &str, why: &dyn std::fmt::Display) -> CniError {
    CniError::new(Code::Undecodable, format!("prevResult.{key}: {why}"))
}

fn list<'r>(result: &'r Value, key: &str) -> Result<&'r [Value], CniError> {
    match &result[key] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        other => Err(wrong(key, &format_args!("{other} is no list"))),
    }
}

fn index(number: &Value, count: usize) -> Result<usize, CniError> {
    let at = number.as_u64().and_then(|at| usize::try_from(at).ok()).filter(|at| *at < count);
    at.ok_or_else(|| wrong("ips", &format_args!("interface {number}, and there are {count} interfaces")))
}

/// An address with its prefix, like `10.244.1.5/24`.
fn address(value: &Value) -> Result<IpAddr, CniError> {
    let refused = |why| wrong("ips", &format_args!("{value} {why}"));
    let text = value.as_str().ok_or_else(|| refused("is no address"))?;
    let (ip, prefix) = text.split_once('/').ok_or_else(|| refused("has no prefix, like 10.244.1.5/24"))?;
    let ip: IpAddr = ip.parse().map_err(|_| refused("is no address"))?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    if !prefix.parse::<u8>().is_ok_and(|prefix| prefix <= longest) {
        return Err(refused("has a prefix that is too long"));
    }
    let ip = ip.to_canonical();
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() {
        return Err(refused("cannot be a pod's"));
    }
    Ok(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::AttachmentId;
    use serde_json::json;

    fn read(result: &Value) -> Result<PodEnd, CniError> {
        let id = AttachmentId { container: "8f3c".to_owned(), interface: "eth0".to_owned() };
        let namespace = "/run/netns/cni-1".into();
        PodEnd::read(result, &Container { id, namespace, pod: None })
    }

    /// As `bridge` with `host-local` writes it, with two families.
    fn of_bridge() -> Value {
        json!({
            "cniVersion": "0.4.0",
            "interfaces": [
                {"name": "cni0", "mac": "c6:f6:d6:35:6e:05"},
                {"name": "veth2a1b3c4d", "mac": "9a:68:a4:a8:3e:0b"},
                {"name": "eth0", "mac": "0e:b1:4e:9d:4e:16", "sandbox": "/run/netns/cni-1"},
            ],
            "ips": [
                {"version": "4", "interface": 2, "address": "10.244.1.5/24", "gateway": "10.244.1.1"},
                {"version": "6", "interface": 2, "address": "fd00:10:244:1::5/64", "gateway": "fd00:10:244:1::1"},
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dns": {},
        })
    }

    #[test]
    fn s1_9_the_end_of_a_bridge() {
        let end = read(&of_bridge()).expect("it is read");
        assert_eq!(end.mac, Some("0e:b1:4e:9d:4e:16".parse().expect("one")));
        assert_eq!(end.addresses, [IpAddr::from([10, 244, 1, 5]), "fd00:10:244:1::5".parse().expect("one")]);
        assert_eq!(end.host, ["veth2a1b3c4d", "cni0"]);
    }

    #[test]
    fn s1_9_the_end_of_ptp() {
        let end = read(&json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "veth5f6a7b8c", "mac": "2a:76:3f:77:71:96"},
                {"name": "eth0", "mac": "de:9c:48:21:a0:5e", "sandbox": "/run/netns/cni-1"},
            ],
            "ips": [{"interface": 1, "address": "10.1.1.2/24", "gateway": "10.1.1.1"}],
            "dns": {"nameservers": ["10.96.0.10"]},
        }))
        .expect("it is read");
        assert_eq!((end.addresses, end.host), (vec![IpAddr::from([10, 1, 1, 2])], vec!["veth5f6a7b8c".to_owned()]));
    }

    /// Only the host's end is listed, and addresses have no number.
    #[test]
    fn s1_9_the_end_of_calico() {
        let end = read(&json!({
            "cniVersion": "0.3.1",
            "interfaces": [{"name": "cali5863f3f2d4e"}],
            "ips": [{"version": "4", "address": "192.168.219.66/32"}],
            "dns": {},
        }))
        .expect("it is read");
        let expected =
            PodEnd { mac: None, addresses: vec![[192, 168, 219, 66].into()], host: vec!["cali5863f3f2d4e".to_owned()] };
        assert_eq!(end, expected);
    }

    #[test]
    fn s1_9_addresses_of_other_interfaces_are_not_the_pods() {
        let mut result = of_bridge();
        result["ips"][1] = json!({"interface": 0, "address": "10.244.1.1/24"});
        assert_eq!(read(&result).expect("it is read").addresses, [IpAddr::from([10, 244, 1, 5])]);
    }

    #[test]
    fn an_interface_of_the_same_name_in_another_namespace_is_another() {
        let mut result = of_bridge();
        let other = json!({"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/cni-2"});
        result["interfaces"].as_array_mut().expect("a list").insert(0, other);
        for ip in result["ips"].as_array_mut().expect("a list") {
            ip["interface"] = 3.into();
        }
        let end = read(&result).expect("it is read");
        assert_eq!((end.mac, end.addresses.len()), (Some("0e:b1:4e:9d:4e:16".parse().expect("one")), 2));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let refused = |change: fn(&mut Value)| {
            let mut result = of_bridge();
            change(&mut result);
            read(&result).expect_err("it is refused").message
        };
        assert!(refused(|result| result["ips"][0]["interface"] = 7.into()).contains("there are 3 interfaces"));
        assert!(refused(|result| result["ips"][0]["address"] = "10.244.1.5".into()).contains("has no prefix"));
        assert!(refused(|result| result["ips"][0]["address"] = "10.244.1.5/33".into()).contains("too long"));
        assert!(refused(|result| result["ips"][0]["address"] = "0.0.0.0/0".into()).contains("cannot be a pod's"));
        assert!(refused(|result| result["ips"][0]["address"] = "::ffff:127.0.0.1/128".into()).contains("a pod's"));
        assert!(refused(|result| result["ips"] = "none".into()).contains("is no list"));
        assert!(refused(|result| result["interfaces"][2]["mac"] = "x".into()).contains("no hardware address"));
    }
}
