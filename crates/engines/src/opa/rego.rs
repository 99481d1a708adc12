//! Rego in this process.

use super::input::text;
use super::result::outcome;
use super::{InputField, OpaSettings, RegoFiles};
use crate::{Engine, EngineError, Judged, Judgement};
use namewall_expression::Facts;
use regorus::languages::rego::compiler::{Compiler, CompilerError};
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{CompiledPolicy, Engine as Interpreter, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Policies and data, ready to be asked. One evaluation takes some ten microseconds, so it is done at once.
pub struct Rego {
    files: RegoFiles,
    /// How long an evaluation may take.
    limit: Duration,
    fields: Vec<InputField>,
    /// The names of the fields, as keys of the input.
    keys: Vec<Value>,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    /// As it was read, never evaluated.
    fresh: Interpreter,
    /// The one that evaluates. An evaluation that was cut short may leave anything in it.
    used: Interpreter,
    /// Of all files.
    digest: u64,
}

/// Why policies cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is longer than {MOST_BYTES} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("{} is not Rego{}: {problem}", path.display(), if *is_v0 { " of version 0" } else { "" })]
    Policy { path: PathBuf, is_v0: bool, problem: String },
    #[error("{} is not a JSON object that goes with the other data: {problem}", path.display())]
    Data { path: PathBuf, problem: String },
    #[error("the policies cannot be evaluated: {problem}")]
    Together { problem: String },
    #[error("no policy has the rule {query}")]
    NoRule { query: String },
    #[error("there is no function {name} here (docs/opa.md says which of OPA's are)")]
    NoFunction { name: String },
}

/// It is asked on the thread that serves: an evaluation that takes a thousand times as long as others do
/// is given up.
const DEFAULT_LIMIT: Duration = Duration::from_millis(50);
/// Steps of an evaluation from one look at the clock to the next.
const STEPS: NonZeroU32 = NonZeroU32::new(64).expect("it is not zero");
/// Of a file.
const MOST_BYTES: u64 = 64 << 20;

impl Rego {
    pub(super) fn load(settings: &OpaSettings, files: &RegoFiles) -> Result<Self, LoadError> {
        let fields = settings.fields.clone();
        let keys = fields.iter().map(|field| Value::from(&*field.name)).collect();
        let limit = settings.timeout.unwrap_or(DEFAULT_LIMIT);
        let loaded = Mutex::new(Loaded::read(files, limit)?);
        Ok(Self { files: files.clone(), limit, fields, keys, loaded })
    }

    /// Reads the files again; whether they have changed. If they are bad, what was read before is kept.
    pub fn reload(&self) -> Result<bool, LoadError> {
        // Not under the lock: reading takes longer than evaluating.
        let new = Loaded::read(&self.files, self.limit)?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = loaded.digest != new.digest;
        if has_changed {
            *loaded = new;
        }
        Ok(has_changed)
    }

    fn evaluate(&self, input: Value) -> Result<Judgement, EngineError> {
        let query = &self.files.query;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.used.set_input(input);
        let result = loaded.used.eval_rule(query.to_string());
        let prints = loaded.used.take_prints().unwrap_or_default();
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                loaded.used = loaded.fresh.clone();
                return Err(EngineError(format!("{query}: {error}")));
            }
        };
        drop(loaded);
        let outcome = outcome(&result).map_err(|EngineError(problem)| EngineError(format!("{query}: {problem}")))?;
        let mut trace = prints;
        trace.push(match &result {
            Value::Undefined => format!("{query} is undefined"),
            result => format!("{query} is {result}"),
        });
        Ok(Judgement { outcome, trace, labels: Vec::new() })
    }
}

impl Engine for Rego {
    fn judge(&self, facts: &dyn Facts) -> Judged {
        let fields = self.keys.iter().zip(&self.fields);
        let input: BTreeMap<Value, Value> =
            fields.filter_map(|(key, field)| Some((key.clone(), Value::from(text(field, facts)?)))).collect();
        Judged::Now(self.evaluate(Value::from(input)))
    }
}

impl Loaded {
    fn read(files: &RegoFiles, limit: Duration) -> Result<Self, LoadError> {
        let RegoFiles { policies, data, query, is_v0 } = files;
        let mut digest = DefaultHasher::new();
        let mut fresh = Interpreter::new();
        fresh.set_rego_v0(*is_v0);
        // As OPA does it: a built-in function that fails is undefined.
        fresh.set_strict_builtin_errors(false);
        // `print` is for who debugs, not for our standard error.
        fresh.set_gather_prints(true);
        for path in policies {
            let text = content(path, &mut digest)?;
            let name = path.display().to_string();
            fresh.add_policy(name, text).map_err(|error| LoadError::Policy {
                path: path.clone(),
                is_v0: *is_v0,
                problem: error.to_string(),
            })?;
        }
        for path in data {
            let text = content(path, &mut digest)?;
            let problem = |error: &dyn fmt::Display| LoadError::Data { path: path.clone(), problem: error.to_string() };
            let document = Value::from_json_str(&text).map_err(|error| problem(&error))?;
            fresh.add_data(document).map_err(|error| problem(&error))?;
        }
        // Whatever can be said of them without a question is said now.
        let compiled = fresh.compile_with_entrypoint(query).map_err(|error| match error.to_string() {
            problem if problem.contains("not a valid rule path") => LoadError::NoRule { query: query.to_string() },
            problem => LoadError::Together { problem },
        })?;
        check_functions(&compiled, query)?;
        fresh.set_execution_timer_config(ExecutionTimerConfig { limit, check_interval: STEPS });
        Ok(Self { used: fresh.clone(), fresh, digest: digest.finish() })
    }
}

/// The interpreter looks for a function when it calls it. The compiler of the virtual machine looks for all
/// of them. It does not know all of Rego yet, so what else it says does not count.
fn check_functions(compiled: &CompiledPolicy, query: &str) -> Result<(), LoadError> {
    use CompilerError::{NotBuiltinFunction, UnknownBuiltinFunction, UnknownFunction};
    match Compiler::compile_from_policy(compiled, &[query]).map_err(|error| error.error) {
        Err(NotBuiltinFunction { name } | UnknownBuiltinFunction { name } | UnknownFunction { name })
            if name != "print" =>
        {
            Err(LoadError::NoFunction { name })
        }
        _ => Ok(()),
    }
}

fn content(path: &Path, digest: &mut DefaultHasher) -> Result<String, LoadError> {
    let failed = |source| LoadError::Read { path: path.into(), source };
    let mut text = String::new();
    // One byte more than is accepted, so that it is seen.
    File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(LoadError::TooLong { path: path.into() });
    }
    text.hash(digest);
    Ok(text)
}

impl fmt::Debug for Rego {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rego").field("files", &self.files).finish_non_exhaustive()
    }
}
