//! The same over IPv6: what policies say of pods holds for every address of
//! theirs, and a name opens what it has of either family.

use crate::names::{ASKS, NOBODY, SILENT, remove_firewall};
use crate::policies::ASKERS;
use crate::report::{Observation, eventually, now, step, within};
use crate::setup::TTL;
use crate::stage::Stage;
use anyhow::Result;
use std::time::Duration;

const FIREWALL: &str = include_str!("../manifests/firewall-six.yaml");
const DB: &str = "[fd00:10:96::80]:5432";
/// Behind a name that has no other, behind one that has both, and behind none.
const ONLY: &str = "[2001:db8:64::7]:443";
const BOTH: [&str; 2] = ["[2001:db8:64::8]:443", "198.51.100.8:443"];
const NOBODY_SIX: &str = "[2001:db8:64::10]:443";
const ZONE: [&str; 3] = [
    "2001:db8:64::7 six.payments.example",
    "2001:db8:64::8 both.payments.example",
    "198.51.100.8 both.payments.example",
];
/// TTL and grace, by the documentation, and some more for a busy machine.
const OVER: Duration = Duration::from_secs(TTL as u64 + 5 + 30);

pub(crate) fn policies_hold(stage: &Stage) -> Result<()> {
    let db = format!("[{}]:80", stage.pod_address_six("shop", "db")?);
    step("the same NetworkPolicy holds over IPv6: on the same node, across nodes and through a Service", || {
        for (name, _, may) in ASKERS {
            let (from, expected) = (format!("shop/{name}"), if may { "it connects" } else { "it does not connect" });
            now(expected, stage.goes(&from, &db, may))?;
            eventually(expected, || stage.goes(&from, DB, may))?;
        }
        Ok(())
    })?;
    step("whom no policy is about is reached over IPv6, and so is the world", || {
        let web = format!("[{}]:80", stage.pod_address_six("shop", "web")?);
        for (name, _, _) in ASKERS {
            for place in [&web, NOBODY_SIX] {
                now("it connects", stage.goes(&format!("shop/{name}"), place, true))?;
            }
        }
        Ok(())
    })
}

pub(crate) fn names_open(stage: &Stage) -> Result<()> {
    step("an EgressFirewall closes the world of both families on both nodes", || {
        stage.set_names(&ZONE)?;
        stage.plane.apply(FIREWALL)?;
        for pod in [ASKS, SILENT] {
            eventually("it does not connect", || stage.goes(pod, NOBODY_SIX, false))?;
            now("it does not connect", stage.goes(pod, NOBODY, false))?;
        }
        Ok(())
    })?;
    step("a name with nothing but an IPv6 address opens it: at once for who asks, and on the other node", || {
        now("it connects", stage.goes(ASKS, "six.payments.example:443", true))?;
        eventually("it connects", || stage.goes(SILENT, ONLY, true))
    })?;
    step("a name that has both opens both", || {
        let heard = stage.tell(ASKS, "resolve both.payments.example")?;
        for place in BOTH {
            now(&format!("it connects, with {heard:?}"), stage.goes(ASKS, place, true))?;
            eventually("it connects", || stage.goes(SILENT, place, true))?;
        }
        Ok(())
    })?;
    step("IPv6 addresses that the name has no more close on both nodes after TTL and grace", || {
        stage.set_names(&["2001:db8:64::8 six.payments.example"])?;
        for pod in [ASKS, SILENT] {
            within(OVER, "it does not connect", || stage.goes(pod, ONLY, false))?;
            eventually("it connects", || stage.goes(pod, BOTH[0], true))?;
        }
        Ok(())
    })?;
    step("both agents say what is open in IPv6", || {
        for node in 0..2 {
            let said = stage.ask_agent(node, &["leases"])?;
            now("the address", Ok(Observation::new(said.contains("2001:db8:64::8"), said)))?;
        }
        Ok(())
    })?;
    step("the EgressFirewall goes, and the world is open over IPv6 too", || {
        remove_firewall(stage)?;
        now("it connects", stage.goes(ASKS, NOBODY_SIX, true))
    })
}
