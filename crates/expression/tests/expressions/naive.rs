//! A second evaluator, written to be seen through: a tree with nothing prepared, values that own what they
//! have, and every rule of the language spelt out as the documentation has it.

use namewall_policy::addr::{Cidr, parse_address};
use std::net::IpAddr;

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Val {
    Text(String),
    Number(f64),
    Bool(bool),
    Address(IpAddr),
    Network(IpAddr, u8),
    List(Vec<Val>),
}

#[derive(Clone, Debug)]
pub(crate) enum Exp {
    Value(Val),
    Fact(&'static str),
    List(Vec<Exp>),
    Prefix(&'static str, Box<Exp>),
    Pair(&'static str, Box<Exp>, Box<Exp>),
    Choice(Box<Exp>, Box<Exp>, Box<Exp>),
    Call(&'static str, Vec<Exp>),
}

/// What is known of a piece before it is evaluated, as far as it changes what comparisons mean.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Sort {
    Text,
    Word,
    Name,
    Number,
    Address,
    Other,
    /// Text or something else.
    Mixed,
}

/// An error of evaluation.
#[derive(Debug, PartialEq)]
pub(crate) struct Wrong;

type Facts<'a> = &'a dyn Fn(&str) -> Val;

pub(crate) fn is_true(value: &Val) -> bool {
    match value {
        Val::Text(text) => !["", "0", "false"].contains(&text.to_lowercase().as_str()),
        Val::Number(number) => *number != 0.0,
        Val::Bool(is) => *is,
        Val::Address(_) | Val::Network(..) => true,
        Val::List(items) => !items.is_empty(),
    }
}

pub(crate) fn evaluate(exp: &Exp, facts: Facts<'_>) -> Result<Val, Wrong> {
    Ok(match exp {
        Exp::Value(value) => value.clone(),
        Exp::Fact(name) => facts(name),
        Exp::List(items) => Val::List(items.iter().map(|item| evaluate(item, facts)).collect::<Result<_, _>>()?),
        Exp::Prefix(sign, inner) => {
            let value = evaluate(inner, facts)?;
            match *sign {
                "-" => Val::Number(0.0 - number(&value)?),
                "~" => Val::Number((-1 - i128::from(number(&value)? as i64)) as f64),
                _ => Val::Bool(!is_true(&value)),
            }
        }
        Exp::Choice(condition, then, otherwise) => {
            evaluate(if is_true(&evaluate(condition, facts)?) { then } else { otherwise }, facts)?
        }
        Exp::Pair(sign, left, right) => return pair(sign, left, right, facts),
        Exp::Call(function, arguments) => return call(function, arguments, facts),
    })
}

fn pair(sign: &str, left: &Exp, right: &Exp, facts: Facts<'_>) -> Result<Val, Wrong> {
    let a = evaluate(left, facts)?;
    match (sign, is_true(&a)) {
        ("and", false) => return Ok(Val::Bool(false)),
        ("or", true) => return Ok(Val::Bool(true)),
        ("and" | "or", _) => return Ok(Val::Bool(is_true(&evaluate(right, facts)?))),
        _ => {}
    }
    if sign == "??" {
        let is_empty = a == Val::Text(String::new()) || a == Val::List(Vec::new());
        return if is_empty { evaluate(right, facts) } else { Ok(a) };
    }
    if sign == "in" || sign == "not in" {
        let items = match right {
            Exp::List(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        for item in items {
            let is_name = [left, item].iter().any(|side| sort(side) == Sort::Name) || sort(left) == Sort::Name;
            let is_word = items.iter().chain([left]).any(|side| sort(side) == Sort::Word);
            let fold = if is_name || items.iter().any(|item| sort(item) == Sort::Name) { 2 } else { u8::from(is_word) };
            if is_among(&a, &evaluate(item, facts)?, fold) {
                return Ok(Val::Bool(sign == "in"));
            }
        }
        return Ok(Val::Bool(sign != "in"));
    }
    let b = evaluate(right, facts)?;
    let sorts = [sort(left), sort(right)];
    let fold = if sorts.contains(&Sort::Name) { 2 } else { u8::from(sorts.contains(&Sort::Word)) };
    Ok(match sign {
        "==" => Val::Bool(is_equal(&a, &b, fold)),
        "!=" => Val::Bool(!is_equal(&a, &b, fold)),
        "=~" | "!~" => {
            let Val::Text(pattern) = b else { return Err(Wrong) };
            let text = show(&a);
            let pattern = if fold > 0 { format!("(?i){pattern}") } else { pattern };
            let regex = regex::Regex::new(&pattern).map_err(|_| Wrong)?;
            let bare = dotless(&text);
            let is = regex.is_match(&text) || sorts[0] == Sort::Name && regex.is_match(&bare);
            Val::Bool(is == (sign == "=~"))
        }
        "<" | "<=" | ">" | ">=" => {
            // Text in quotes is a number beside what is one if it is set at all, and the same for addresses.
            let meant = |exp: &Exp, value: &Val, other: &Exp| match (exp, sort(other)) {
                (Exp::Value(Val::Text(_)), Sort::Number) => number(value).map(Val::Number),
                (Exp::Value(Val::Text(_)), Sort::Address) => address(value).map(Val::Address),
                _ => Ok(value.clone()),
            };
            let order = compare(&meant(left, &a, right)?, &meant(right, &b, left)?)?;
            Val::Bool(order.is_some_and(|order| match sign {
                "<" => order < 0,
                "<=" => order <= 0,
                ">" => order > 0,
                _ => order >= 0,
            }))
        }
        "+" => match (&a, &b) {
            (Val::List(_), _) | (_, Val::List(_)) => return Err(Wrong),
            (Val::Number(a), Val::Number(b)) => finite(a + b)?,
            (Val::Text(_), _) | (_, Val::Text(_)) => Val::Text(show(&a) + &show(&b)),
            _ => return Err(Wrong),
        },
        _ => {
            let (a, b) = (number(&a)?, number(&b)?);
            let (x, y) = (i128::from(a as i64), i128::from(b as i64));
            let shifted = |x: u64| {
                if (0..64).contains(&y) {
                    Ok(x)
                } else if y < 0 {
                    Err(Wrong)
                } else {
                    Ok(0)
                }
            };
            match sign {
                "-" => finite(a - b)?,
                "*" => finite(a * b)?,
                "/" | "%" if b == 0.0 => return Err(Wrong),
                "/" => finite(a / b)?,
                "%" => finite(a - b * (a / b).trunc())?,
                "&" => Val::Number((x & y) as f64),
                "|" => Val::Number((x | y) as f64),
                "^" => Val::Number((x ^ y) as f64),
                "<<" => Val::Number(shifted(x as u64).map(|x| if x == 0 { 0 } else { x << y })? as f64),
                ">>" => Val::Number(shifted(x as u64).map(|x| if x == 0 { 0 } else { x >> y })? as f64),
                other => panic!("what is {other}?"),
            }
        }
    })
}

fn call(function: &str, arguments: &[Exp], facts: Facts<'_>) -> Result<Val, Wrong> {
    let first = evaluate(&arguments[0], facts)?;
    let is_folded = matches!(sort(&arguments[0]), Sort::Name | Sort::Word);
    let is_name = sort(&arguments[0]) == Sort::Name;
    let low = |text: String| if is_folded { text.to_lowercase() } else { text };
    // One after the other, and no further than needed.
    let any = |is: &dyn Fn(&Val) -> Result<bool, Wrong>| {
        for argument in &arguments[1..] {
            let items: Vec<&Exp> = match argument {
                Exp::List(items) => items.iter().collect(),
                one => vec![one],
            };
            for item in items {
                if is(&evaluate(item, facts)?)? {
                    return Ok(Val::Bool(true));
                }
            }
        }
        Ok(Val::Bool(false))
    };
    Ok(match function {
        "in-cidr" => {
            if first == Val::Text(String::new()) {
                return Ok(Val::Bool(false));
            }
            let address = address(&first)?;
            return any(&|network| is_within(address, network));
        }
        "under" => {
            let name = dotless(&show(&first).to_lowercase());
            return any(&|domain| {
                let domain = dotless(&show(domain).to_lowercase());
                let is_root = domain == ".";
                let (below, above): (Vec<&str>, Vec<&str>) = (name.split('.').collect(), domain.split('.').collect());
                Ok(!name.is_empty() && !domain.is_empty() && (is_root || below.ends_with(&above)))
            });
        }
        "has_suffix" => {
            let text = low(show(&first));
            return any(&|suffix| {
                let suffix = low(show(suffix));
                let (text, suffix) = if is_name { (dotless(&text), dotless(&suffix)) } else { (text.clone(), suffix) };
                Ok(text.ends_with(&suffix) || is_name && suffix == ".")
            });
        }
        "has_prefix" => {
            let text = low(show(&first));
            return any(&|prefix| Ok(text.starts_with(&low(show(prefix)))));
        }
        "lower" => Val::Text(show(&first).to_lowercase()),
        "atoi" => match first {
            Val::Number(number) => Val::Number(number),
            other => Val::Number(show(&other).parse::<i64>().map_err(|_| Wrong)? as f64),
        },
        "label" => {
            let at = number(&evaluate(&arguments[1], facts)?)?;
            if at != at.trunc() {
                return Err(Wrong);
            }
            let labels = labels(&show(&first));
            let at = if at < 0.0 { labels.len() as f64 + at } else { at };
            let found = if at < 0.0 { None } else { labels.get(at as usize).cloned() };
            Val::Text(found.unwrap_or_default())
        }
        "count" => Val::Number(match &first {
            Val::List(items) => items.len(),
            other => labels(&show(other)).len(),
        } as f64),
        "len" => Val::Number(match &first {
            Val::List(items) => items.len(),
            other => show(other).chars().count(),
        } as f64),
        other => panic!("what is {other}?"),
    })
}

fn labels(name: &str) -> Vec<String> {
    let bare = dotless(name);
    if bare.is_empty() || bare == "." { Vec::new() } else { bare.split('.').map(str::to_owned).collect() }
}

fn dotless(name: &str) -> String {
    if name == "." { name.to_owned() } else { name.strip_suffix('.').unwrap_or(name).to_owned() }
}

fn finite(number: f64) -> Result<Val, Wrong> {
    if number.is_finite() { Ok(Val::Number(number + 0.0)) } else { Err(Wrong) }
}

pub(crate) fn show(value: &Val) -> String {
    match value {
        Val::Text(text) => text.clone(),
        Val::Number(number) => number.to_string(),
        Val::Bool(is) => is.to_string(),
        Val::Address(address) => address.to_string(),
        Val::Network(address, prefix) => format!("{address}/{prefix}"),
        Val::List(items) => items.iter().map(show).collect::<Vec<_>>().join(","),
    }
}

fn number(value: &Val) -> Result<f64, Wrong> {
    match value {
        Val::Number(number) => Ok(*number),
        Val::Text(text) if text.chars().all(|c| "+-.0123456789".contains(c)) => text.parse().map_err(|_| Wrong),
        _ => Err(Wrong),
    }
}

fn address(value: &Val) -> Result<IpAddr, Wrong> {
    match value {
        Val::Address(address) => Ok(*address),
        Val::Text(text) => parse_address(text).ok_or(Wrong),
        _ => Err(Wrong),
    }
}

fn bits(address: IpAddr) -> Vec<bool> {
    let bytes = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
}

fn is_in(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let (address, network) = (bits(address), bits(network));
    address.len() == network.len() && address[..prefix.into()] == network[..prefix.into()]
}

fn network(text: &str) -> Result<(IpAddr, u8), Wrong> {
    let network: Cidr = text.parse().map_err(|_| Wrong)?;
    Ok((network.address(), network.prefix()))
}

fn is_within(one: IpAddr, value: &Val) -> Result<bool, Wrong> {
    match value {
        Val::Network(address, prefix) => Ok(is_in(one, *address, *prefix)),
        Val::Address(address) => Ok(one == *address),
        Val::Text(text) if text.is_empty() => Ok(false),
        Val::Text(text) => match parse_address(text) {
            Some(address) => Ok(one == address),
            None => network(text).map(|(network, prefix)| is_in(one, network, prefix)),
        },
        Val::List(items) => {
            for item in items {
                if is_within(one, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Err(Wrong),
    }
}

fn is_among(value: &Val, item: &Val, fold: u8) -> bool {
    match item {
        Val::List(items) => items.iter().any(|item| is_among(value, item, fold)),
        item => is_equal(value, item, fold),
    }
}

fn is_equal(a: &Val, b: &Val, fold: u8) -> bool {
    match (a, b) {
        (Val::Text(a), Val::Text(b)) => match fold {
            0 => a == b,
            1 => a.to_lowercase() == b.to_lowercase(),
            _ => dotless(&a.to_lowercase()) == dotless(&b.to_lowercase()),
        },
        (Val::Text(_), Val::Number(b)) => number(a) == Ok(*b),
        (Val::Text(text), Val::Bool(b)) => text.to_lowercase() == b.to_string(),
        (Val::Text(text), Val::Address(b)) => {
            address(a) == Ok(*b) || network(text).is_ok_and(|(network, prefix)| is_in(*b, network, prefix))
        }
        (Val::Text(text), Val::Network(address, prefix)) => match parse_address(text) {
            Some(one) => is_in(one, *address, *prefix),
            None => network(text) == Ok((*address, *prefix)),
        },
        (Val::Address(a), Val::Network(address, prefix)) => is_in(*a, *address, *prefix),
        (_, Val::Text(_)) | (Val::Network(..), Val::Address(_)) => is_equal(b, a, fold),
        (a, b) => a == b,
    }
}

/// -1, 0 or 1; none if they are not on one line.
fn compare(a: &Val, b: &Val) -> Result<Option<i8>, Wrong> {
    let order = |order: std::cmp::Ordering| Some(order as i8);
    Ok(match (a, b) {
        (Val::Text(a), Val::Text(b)) => order(a.cmp(b)),
        (Val::Text(text), Val::Number(_) | Val::Address(_)) | (Val::Number(_) | Val::Address(_), Val::Text(text))
            if text.is_empty() =>
        {
            None
        }
        (Val::Address(_), Val::Address(_) | Val::Text(_)) | (Val::Text(_), Val::Address(_)) => {
            let (a, b) = (bits(address(a)?), bits(address(b)?));
            if a.len() == b.len() { order(a.cmp(&b)) } else { None }
        }
        (Val::Number(_), Val::Number(_) | Val::Text(_)) | (Val::Text(_), Val::Number(_)) => {
            number(a)?.partial_cmp(&number(b)?).and_then(order)
        }
        _ => return Err(Wrong),
    })
}

fn sort(exp: &Exp) -> Sort {
    let is_empty = |exp: &Exp| matches!(exp, Exp::Value(Val::Text(text)) if text.is_empty());
    let either = |a: &Exp, b: &Exp| match (sort(a), sort(b)) {
        (Sort::Mixed, _) | (_, Sort::Mixed) => Sort::Mixed,
        (one, _) if is_empty(b) => one,
        (_, one) if is_empty(a) => one,
        (one, other) if one == other => one,
        (Sort::Text | Sort::Word | Sort::Name, Sort::Text | Sort::Word | Sort::Name) => Sort::Text,
        _ => Sort::Mixed,
    };
    match exp {
        Exp::Value(Val::Text(_)) => Sort::Text,
        Exp::Fact("name") => Sort::Name,
        Exp::Fact("type") => Sort::Word,
        Exp::Value(Val::Number(_)) | Exp::Fact("port" | "rsize") => Sort::Number,
        Exp::Value(Val::Address(_)) | Exp::Fact("client_ip" | "response_ip") => Sort::Address,
        Exp::Prefix("-" | "~", _) | Exp::Call("atoi" | "count" | "len", _) => Sort::Number,
        Exp::Pair("-" | "*" | "/" | "%" | "&" | "|" | "^" | "<<" | ">>", ..) => Sort::Number,
        Exp::Fact(name) if name.starts_with("label") => Sort::Text,
        Exp::Choice(_, then, otherwise) => either(then, otherwise),
        Exp::Pair("??", a, b) => either(a, b),
        Exp::Pair("+", a, b) => {
            let is_text = |exp: &Exp| matches!(sort(exp), Sort::Text | Sort::Word | Sort::Name);
            match (sort(a), sort(b)) {
                (Sort::Mixed, _) | (_, Sort::Mixed) => Sort::Mixed,
                _ if is_text(a) || is_text(b) => Sort::Text,
                _ => Sort::Number,
            }
        }
        Exp::Call("lower", arguments) => sort(&arguments[0]),
        Exp::Call("label", arguments) if sort(&arguments[0]) == Sort::Name => Sort::Word,
        Exp::Call("label", _) => Sort::Text,
        _ => Sort::Other,
    }
}
