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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Policies and data, ready to be asked. An evaluation takes some ten microseconds, or as long as a policy makes it
/// take: so it is done on threads of its own.
pub struct Rego {
    fields: Vec<InputField>,
    /// The names of the fields, as keys of the input.
    keys: Vec<Value>,
    evaluator: Arc<Evaluator>,
}

/// What evaluates, on any thread.
struct Evaluator {
    files: RegoFiles,
    /// How long an evaluation may take.
    limit: Duration,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    /// As it was read, never evaluated.
    fresh: Interpreter,
    /// Those that have evaluated, and evaluate again. One whose evaluation was cut short is not among them: there may
    /// be anything in it.
    idle: Vec<Interpreter>,
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

/// An evaluation that takes a thousand times as long as others do is given up.
const DEFAULT_LIMIT: Duration = Duration::from_millis(50);
/// How long a question waits for its turn and its evaluation, if the limit is not longer.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
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
        Ok(Self { fields, keys, evaluator: Arc::new(Evaluator { files: files.clone(), limit, loaded }) })
    }

    /// Reads the files again; whether they have changed. If they are bad, what was read before is kept.
    pub fn reload(&self) -> Result<bool, LoadError> {
        self.evaluator.reload()
    }
}

impl Evaluator {
    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self) -> Result<bool, LoadError> {
        // Not under the lock: reading takes longer than evaluating.
        let new = Loaded::read(&self.files, self.limit)?;
        let mut loaded = self.loaded();
        let has_changed = loaded.digest != new.digest;
        if has_changed {
            *loaded = new;
        }
        Ok(has_changed)
    }

    /// An interpreter that nobody else uses, and which policies it has.
    fn take(&self) -> (Interpreter, u64) {
        let mut loaded = self.loaded();
        let interpreter = loaded.idle.pop().unwrap_or_else(|| loaded.fresh.clone());
        (interpreter, loaded.digest)
    }

    fn give_back(&self, interpreter: Interpreter, digest: u64) {
        let mut loaded = self.loaded();
        if loaded.digest == digest {
            loaded.idle.push(interpreter);
        }
    }

    fn evaluate(&self, input: Value) -> Result<Judgement, EngineError> {
        let query = &self.files.query;
        let (mut interpreter, digest) = self.take();
        interpreter.set_input(input);
        let result = interpreter.eval_rule(query.to_string());
        let prints = interpreter.take_prints().unwrap_or_default();
        let result = result.map_err(|error| EngineError(format!("{query}: {error}")))?;
        self.give_back(interpreter, digest);
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
    fn judge_until(&self, facts: &dyn Facts, until: Instant) -> Judged {
        let fields = self.keys.iter().zip(&self.fields);
        let input: BTreeMap<Value, Value> =
            fields.filter_map(|(key, field)| Some((key.clone(), Value::from(text(field, facts)?)))).collect();
        let evaluator = self.evaluator.clone();
        Judged::Later(Box::new(move || {
            if Instant::now() >= until {
                let query = &evaluator.files.query;
                return Err(EngineError(format!("{query}: the evaluations before it took too long")));
            }
            evaluator.evaluate(Value::from(input))
        }))
    }

    fn patience(&self) -> Duration {
        self.evaluator.limit.max(LONGEST_WAIT)
    }

    /// All processors but one, which serves.
    fn workers(&self) -> usize {
        std::thread::available_parallelism().map_or(1, |all| all.get().saturating_sub(1)).max(1)
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
        Ok(Self { idle: Vec::new(), fresh, digest: digest.finish() })
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
        f.debug_struct("Rego").field("files", &self.evaluator.files).finish_non_exhaustive()
    }
}
