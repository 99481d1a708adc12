//! Files → policies. Everything that can be wrong is told here, before
//! anything is asked.

use super::at::{At, PolicyError};
use super::combine::{Algorithm, Choices, Group, Mapper, Obligation, Policy, PolicyPart, Rule, Target};
use super::content::{Contents, KeyKind};
use super::expression::Expression;
use super::function::{self, Function};
use super::selector::{Aggregation, Selector};
use super::symbols::{Symbols, immediate};
use crate::themis::value::Type;

pub(super) struct Reader<'r> {
    pub(super) symbols: &'r Symbols,
    pub(super) contents: &'r Contents,
}

const POLICY_KEYS: [&str; 6] = ["id", "target", "alg", "rules", "policies", "obligations"];

impl Reader<'_> {
    pub(super) fn policy(&self, at: &At<'_>) -> Result<Policy, PolicyError> {
        at.only("a policy or a set of policies", &POLICY_KEYS)?;
        match (at.get("rules"), at.get("policies")) {
            (Some(rules), None) => {
                let rules = rules.items("a list of rules")?.map(|rule| self.rule(&rule)).collect::<Result<_, _>>()?;
                Ok(Policy::Rules(self.group(at, rules)?))
            }
            (None, Some(policies)) => {
                let policies = policies
                    .items("a list of policies")?
                    .map(|policy| self.policy(&policy))
                    .collect::<Result<_, _>>()?;
                Ok(Policy::Set(self.group(at, policies)?))
            }
            _ => Err(at.wrong("a policy has `rules`, a set has `policies`: one of the two")),
        }
    }

    fn group<P: PolicyPart>(&self, at: &At<'_>, parts: Vec<P>) -> Result<Group<P>, PolicyError> {
        Ok(Group {
            id: id(at)?,
            target: self.target(at)?,
            algorithm: self.algorithm(at, Some(&parts))?,
            obligations: self.obligations(at)?,
            parts,
        })
    }

    fn rule(&self, at: &At<'_>) -> Result<Rule, PolicyError> {
        at.only("a rule", &["id", "target", "condition", "effect", "obligations"])?;
        let effect = at.need("effect")?;
        let permits = match &*effect.text("`Permit` or `Deny`")?.to_ascii_lowercase() {
            "permit" => true,
            "deny" => false,
            _ => return Err(effect.wrong("an effect is `Permit` or `Deny`")),
        };
        let condition = at.get("condition").map(|condition| {
            let expression = self.expression(&condition)?;
            match expression.kind() {
                Type::Boolean => Ok(expression),
                other => Err(condition.wrong(format_args!("a condition is of the type Boolean, not {other}"))),
            }
        });
        Ok(Rule {
            id: id(at)?,
            target: self.target(at)?,
            condition: condition.transpose()?,
            permits,
            obligations: self.obligations(at)?,
        })
    }

    fn obligations(&self, at: &At<'_>) -> Result<Vec<Obligation>, PolicyError> {
        let Some(list) = at.get("obligations") else { return Ok(Vec::new()) };
        let read = |item: At<'_>| {
            let (name, value) = item.pair("an obligation")?;
            let name = self.symbols.attribute(&value, name)?.name.clone();
            let expression = self.expression(&value)?;
            match expression.kind() {
                // It would end Themis' server.
                Type::Flags(_) => Err(value.wrong("flags cannot be sent; take `list of strings` of them")),
                _ => Ok(Obligation { name, value: expression }),
            }
        };
        list.items("a list of obligations")?.map(read).collect()
    }

    fn target(&self, at: &At<'_>) -> Result<Target, PolicyError> {
        let Some(list) = at.get("target") else { return Ok(Target::default()) };
        list.items("a list of tests")?.map(|item| self.any(&item)).collect::<Result<_, _>>().map(Target)
    }

    fn any(&self, at: &At<'_>) -> Result<Vec<Vec<Expression>>, PolicyError> {
        let (name, inner) = at.pair("a test")?;
        if name.eq_ignore_ascii_case("any") {
            return inner.items("a list of tests")?.map(|item| self.all(&item)).collect();
        }
        Ok(vec![vec![self.test(name, &inner)?]])
    }

    fn all(&self, at: &At<'_>) -> Result<Vec<Expression>, PolicyError> {
        let (name, inner) = at.pair("a test")?;
        if !name.eq_ignore_ascii_case("all") {
            return Ok(vec![self.test(name, &inner)?]);
        }
        let read = |item: At<'_>| {
            let (name, inner) = item.pair("a test")?;
            self.test(name, &inner)
        };
        inner.items("a list of tests")?.map(read).collect()
    }

    /// One attribute and one immediate value.
    fn test(&self, name: &str, at: &At<'_>) -> Result<Expression, PolicyError> {
        let arguments: Vec<Expression> =
            at.items("two arguments")?.map(|argument| self.expression(&argument)).collect::<Result<_, _>>()?;
        let function = name.to_ascii_lowercase();
        if !matches!(&*function, "equal" | "greater" | "contains") {
            return Err(at.wrong(format_args!("`{name}` cannot be in a target; there are equal, greater, contains")));
        }
        let pair: Result<[Expression; 2], _> = arguments.try_into();
        let Ok([first, second]) = pair else { return Err(at.wrong("a test has two arguments")) };
        if !matches!(
            (&first, &second),
            (Expression::Attribute(_), Expression::Value(..)) | (Expression::Value(..), Expression::Attribute(_))
        ) {
            return Err(at.wrong("a test in a target is of one `attr` and one `val`"));
        }
        let (left, right) = (first.kind(), second.kind());
        let Some(function) = Function::of_target(&function, &left, &right) else {
            return Err(at.wrong(format_args!("there is no `{name}` of {left} and {right} in targets")));
        };
        let turned = function == Function::NetworkContains && left == Type::Address;
        let arguments = if turned { [second, first] } else { [first, second] };
        Ok(Expression::Call(function, arguments.into()))
    }

    fn expression(&self, at: &At<'_>) -> Result<Expression, PolicyError> {
        let (name, inner) = at.pair("an expression")?;
        if at.is_word(name, "attr") {
            let name = inner.text("the name of an attribute")?;
            return Ok(Expression::Attribute(self.symbols.attribute(&inner, name)?.clone()));
        }
        if at.is_word(name, "val") {
            let (kind, value) = immediate(&inner, &self.symbols.types)?;
            return Ok(Expression::Value(kind, value));
        }
        if at.is_word(name, "selector") {
            return Ok(Expression::Selector(Box::new(self.selector(&inner)?)));
        }
        if !function::is_name(name) {
            return Err(inner.wrong(format_args!("there is no function `{name}`")));
        }
        let arguments: Vec<Expression> =
            inner.items("a list of arguments")?.map(|argument| self.expression(&argument)).collect::<Result<_, _>>()?;
        let kinds: Vec<Type> = arguments.iter().map(Expression::kind).collect();
        match Function::named(name, &kinds) {
            Some(function) => Ok(Expression::Call(function, arguments.into())),
            None => {
                let kinds: Vec<String> = kinds.iter().map(Type::to_string).collect();
                Err(inner.wrong(format_args!("there is no `{name}` of ({})", kinds.join(", "))))
            }
        }
    }

    fn selector(&self, at: &At<'_>) -> Result<Selector, PolicyError> {
        at.only("a selector", &["uri", "path", "type", "default", "error", "aggregation"])?;
        let kind = self.symbols.types.read(&at.need("type")?)?;
        let uri = at.need("uri")?;
        let place = uri.text("`local:CONTENT/ITEM`")?;
        let place = place.strip_prefix("local:").and_then(|place| place.split_once('/'));
        let Some((content, item)) = place.filter(|(_, item)| !item.contains('/')) else {
            return Err(uri.wrong("a selector is `local:CONTENT/ITEM`; other servers are not asked"));
        };
        let Some(items) = self.contents.get(content) else {
            return Err(uri.wrong(format_args!("there is no content `{content}`")));
        };
        let Some(item) = items.get(item).cloned() else {
            return Err(uri.wrong(format_args!("there is no item `{item}` in the content `{content}`")));
        };
        let matches = match (&item.kind, &kind) {
            (Type::Flags(has), Type::Flags(wanted)) => has.flags.len() == wanted.flags.len(),
            (has, wanted) => has == wanted,
        };
        if !matches {
            return Err(at.wrong(format_args!("the item has values of the type {}, not {kind}", item.kind)));
        }
        let aggregation = self.aggregation(at, &kind)?;
        let path = self.path(&at.need("path")?, &item.keys, aggregation)?;
        let fallback = |word: &str| {
            let Some(at) = at.get(word) else { return Ok(None) };
            let expression = self.expression(&at)?;
            match expression.kind() {
                own if own == kind => Ok(Some(expression)),
                own => Err(at.wrong(format_args!("it is of the type {own}, not {kind}"))),
            }
        };
        let (default, error) = (fallback("default")?, fallback("error")?);
        Ok(Selector { item, path, kind, default, error, aggregation })
    }

    fn aggregation(&self, at: &At<'_>, kind: &Type) -> Result<Option<Aggregation>, PolicyError> {
        let Some(at) = at.get("aggregation") else { return Ok(None) };
        let how = match &*at.text("a kind of aggregation")?.to_ascii_lowercase() {
            "" | "disable" => return Ok(None),
            "return first" => Aggregation::First,
            "append" => Aggregation::Append,
            "append unique" => Aggregation::AppendUnique,
            _ => return Err(at.wrong("there are `disable`, `return first`, `append` and `append unique`")),
        };
        if how != Aggregation::First && *kind != Type::ListOfStrings {
            return Err(at.wrong(format_args!("only lists of strings can be appended, not {kind}")));
        }
        Ok(Some(how))
    }

    fn path(
        &self,
        at: &At<'_>,
        keys: &[KeyKind],
        aggregation: Option<Aggregation>,
    ) -> Result<Box<[Expression]>, PolicyError> {
        let steps = at.items("a list of expressions")?;
        if steps.len() != keys.len() {
            return Err(at.wrong(format_args!("the item has {} keys; this path has {}", keys.len(), steps.len())));
        }
        let mut path = Vec::with_capacity(keys.len());
        for (step, key) in steps.zip(keys) {
            let expression = self.expression(&step)?;
            let kind = expression.kind();
            let many = aggregation.is_some() && *key == KeyKind::Text && kind == Type::ListOfStrings;
            if !many && !key.takes(&kind) {
                return Err(step.wrong(format_args!("the item has no keys of the type {kind} here")));
            }
            path.push(expression);
        }
        Ok(path.into())
    }

    /// `parts` are whose decisions are combined; `None` within a mapper, where they are not known.
    fn algorithm<P: PolicyPart>(&self, at: &At<'_>, parts: Option<&[P]>) -> Result<Algorithm, PolicyError> {
        let at = at.need("alg")?;
        if !at.is_text() {
            return self.mapper(&at, parts);
        }
        match &*at.text("an algorithm")?.to_ascii_lowercase() {
            "firstapplicableeffect" => Ok(Algorithm::FirstApplicable),
            "denyoverrides" => Ok(Algorithm::DenyOverrides),
            _ => Err(at.wrong("there are FirstApplicableEffect, DenyOverrides and, as a map, Mapper")),
        }
    }

    fn mapper<P: PolicyPart>(&self, at: &At<'_>, parts: Option<&[P]>) -> Result<Algorithm, PolicyError> {
        at.only("an algorithm", &["id", "map", "default", "error", "order", "alg"])?;
        let name = at.need("id")?;
        if !name.text("`Mapper`")?.eq_ignore_ascii_case("mapper") {
            return Err(name.wrong("the one algorithm that is a map is Mapper"));
        }
        let map = at.need("map")?;
        let argument = self.expression(&map)?;
        let kind = argument.kind();
        let choices = match (&kind, parts) {
            (Type::Flags(flags), Some(parts)) => Choices::flags(parts, flags),
            (Type::Flags(_), None) => return Err(map.wrong("a mapper within a mapper has no flags to map")),
            (Type::String | Type::SetOfStrings | Type::ListOfStrings, Some(parts)) => Choices::named(parts),
            (Type::String | Type::SetOfStrings | Type::ListOfStrings, None) => Choices::Chosen,
            _ => {
                return Err(
                    map.wrong(format_args!("strings, sets and lists of them, and flags are mapped, not {kind}"))
                );
            }
        };
        let part = |word: &str| {
            let Some(at) = at.get(word) else { return Ok(None) };
            let id = at.text("an id")?;
            let found = parts.unwrap_or_default().iter().rposition(|part| part.id() == Some(id));
            found.map(Some).ok_or_else(|| at.wrong(format_args!("there is nothing of the id `{id}` here")))
        };
        let own_order = match at.get("order") {
            None => false,
            Some(order) => match &*order.text("an order")?.to_ascii_lowercase() {
                "internal" => true,
                "external" => false,
                _ => return Err(order.wrong("an order is `Internal` or `External`")),
            },
        };
        // Of a single id there is nothing to combine: what stands there is read, and not used.
        let inner = match (&kind, at.get("alg")) {
            (Type::String, None) => None,
            (Type::String, Some(_)) => self.algorithm::<P>(at, None).map(|_| None)?,
            _ => Some(self.algorithm::<P>(at, None)?),
        };
        let (default, error) = (part("default")?, part("error")?);
        Ok(Algorithm::Mapper(Box::new(Mapper { argument, choices, default, error, own_order, inner })))
    }
}

fn id(at: &At<'_>) -> Result<Option<Box<str>>, PolicyError> {
    at.get("id").map(|id| id.text("an id").map(Box::from)).transpose()
}

/// Reads the attributes and the policy of a file.
pub(super) fn read(file: &At<'_>, contents: &Contents) -> Result<(Symbols, Policy), PolicyError> {
    file.only("a policy file", &["types", "attributes", "policies"])?;
    let symbols = Symbols::read(file)?;
    let policy = Reader { symbols: &symbols, contents }.policy(&file.need("policies")?)?;
    Ok((symbols, policy))
}
