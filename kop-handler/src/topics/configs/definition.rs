//! What one configuration is: type, rule, documentation; and the check of a value, with Kafka's error texts.
//!
//! It must not know which configurations exist.

use crate::error::Fault;

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Kafka's name.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Kafka's default, as text.
    pub default: &'static str,
    /// Which values of the type are legal.
    pub rule: Rule,
    /// The broker's configuration that gives the default, if there is one (Kafka: `ServerTopicConfigSynonyms`).
    pub synonym: Option<&'static str>,
    /// What it does here.
    pub effect: Effect,
    /// For people, without the effect.
    pub doc: &'static str,
}

/// Type of a value; the number is what DescribeConfigs says on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Kind {
    /// `true` or `false`.
    Boolean = 1,
    /// Text.
    Text = 2,
    /// 32 bits.
    Int = 3,
    /// 16 bits.
    Short = 4,
    /// 64 bits.
    Long = 5,
    /// Floating point.
    Double = 6,
    /// Comma list.
    List = 7,
    /// Java class name.
    Class = 8,
    /// Never shown.
    Password = 9,
}

impl Kind {
    fn java_name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::Text => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }
}

/// Which values of a type are legal.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// All.
    Unbounded,
    /// From here on.
    AtLeast(i64),
    /// From the first to the second.
    Between(i64, i64),
    /// 1 to 9, or −1 for the codec's default.
    Gzip,
    /// 0 to 1.
    Ratio,
    /// One of these, case and all.
    OneOf(&'static [&'static str]),
    /// Each item one of these.
    ItemsOf(&'static [&'static str]),
    /// `*`, or `partition:broker` pairs.
    Replicas,
    /// Only `false`, as in a Kafka broker without tiered storage.
    NoTieredStorage,
}

/// What a configuration does here. Anything but [`Effect::Built`] is said in DescribeConfigs' documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// What its documentation says.
    Built,
    /// Nothing yet, and why.
    NotBuilt(&'static str),
    /// Nothing: the host *does this*.
    HostDecides(&'static str),
    /// Nothing: a Kafka partition has one replica, and the host replicates beneath it.
    OneReplica,
}

impl Definition {
    /// The documentation that clients see: what it is, and what does not work.
    #[must_use]
    pub fn documentation(&self) -> String {
        match self.effect {
            Effect::Built => self.doc.to_owned(),
            Effect::NotBuilt(why) => {
                format!("{} Stored, but without effect here yet: {why}.", self.doc)
            }
            Effect::HostDecides(what) => {
                format!(
                    "{} Stored, but without effect here: the host {what}.",
                    self.doc
                )
            }
            Effect::OneReplica => format!(
                "{} Stored, but without effect here: Kafka clients see one replica, and the host replicates beneath it.",
                self.doc
            ),
        }
    }

    /// Checks a value by Kafka's rules and gives it in the one form in which it is stored and shown.
    ///
    /// # Errors
    /// [`Fault::InvalidConfig`] with Kafka's text.
    pub fn parse(&self, value: &str) -> Result<String, Fault> {
        let trimmed = value.trim();
        match self.kind {
            Kind::Boolean => self.parse_boolean(value, trimmed),
            Kind::Int | Kind::Short | Kind::Long => self.parse_number(value, trimmed),
            Kind::Double => self.parse_double(value, trimmed),
            Kind::List => self.parse_list(trimmed),
            Kind::Text | Kind::Class | Kind::Password => {
                if let Rule::OneOf(values) = self.rule
                    && !values.contains(&value)
                {
                    return Err(self.invalid(value, &one_of(values)));
                }
                Ok(value.to_owned())
            }
        }
    }

    fn invalid(&self, value: &str, reason: &str) -> Fault {
        Fault::InvalidConfig(format!(
            "Invalid value {value} for configuration {}: {reason}",
            self.name
        ))
    }

    fn not_a_number(&self, value: &str) -> Fault {
        self.invalid(
            value,
            &format!("Not a number of type {}", self.kind.java_name()),
        )
    }

    fn parse_boolean(&self, value: &str, trimmed: &str) -> Result<String, Fault> {
        let parsed = if trimmed.eq_ignore_ascii_case("true") {
            true
        } else if trimmed.eq_ignore_ascii_case("false") {
            false
        } else {
            return Err(self.invalid(value, "Expected value to be either true or false"));
        };
        if parsed && matches!(self.rule, Rule::NoTieredStorage) {
            return Err(Fault::InvalidConfig(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
                    .to_owned(),
            ));
        }
        Ok(parsed.to_string())
    }

    fn parse_number(&self, value: &str, trimmed: &str) -> Result<String, Fault> {
        let number: i64 = match self.kind {
            Kind::Int => trimmed.parse::<i32>().map(i64::from),
            Kind::Short => trimmed.parse::<i16>().map(i64::from),
            _ => trimmed.parse(),
        }
        .map_err(|_| self.not_a_number(value))?;
        let reason = match self.rule {
            Rule::AtLeast(min) | Rule::Between(min, _) if number < min => {
                format!("Value must be at least {min}")
            }
            Rule::Between(_, max) if number > max => format!("Value must be no more than {max}"),
            Rule::Gzip if number != -1 && !(1..=9).contains(&number) => {
                "Value must be between 1 and 9 or equal to -1".to_owned()
            }
            _ => return Ok(number.to_string()),
        };
        Err(self.invalid(&number.to_string(), &reason))
    }

    fn parse_double(&self, value: &str, trimmed: &str) -> Result<String, Fault> {
        // Kafka takes NaN, which no comparison can use afterwards; here it is not a number.
        let number: f64 = trimmed
            .parse()
            .ok()
            .filter(|number: &f64| !number.is_nan())
            .ok_or_else(|| self.not_a_number(value))?;
        let shown = java_double(number);
        if matches!(self.rule, Rule::Ratio) {
            if number < 0.0 {
                return Err(self.invalid(&shown, "Value must be at least 0"));
            }
            if number > 1.0 {
                return Err(self.invalid(&shown, "Value must be no more than 1"));
            }
        }
        Ok(shown)
    }

    fn parse_list(&self, trimmed: &str) -> Result<String, Fault> {
        let items = items(trimmed);
        match self.rule {
            Rule::ItemsOf(values) => {
                for item in &items {
                    if item.is_empty() {
                        return Err(Fault::InvalidConfig(format!(
                            "Configuration '{}' values must not be empty.",
                            self.name
                        )));
                    }
                    if !values.contains(item) {
                        return Err(self.invalid(item, &one_of(values)));
                    }
                }
            }
            Rule::Replicas => {
                let legal = items.as_slice() == ["*"] || items.iter().all(|item| is_replica(item));
                if !legal {
                    return Err(self.invalid(
                        &format!("[{}]", items.join(", ")),
                        &format!(
                            "{} must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
                            self.name
                        ),
                    ));
                }
            }
            _ => {}
        }
        Ok(items.join(","))
    }
}

/// The items of a list, without the blanks around them; none of an empty text.
#[must_use]
pub fn items(text: &str) -> Vec<&str> {
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(str::trim).collect()
}

fn one_of(values: &[&str]) -> String {
    format!("String must be one of: {}", values.join(", "))
}

fn is_replica(item: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    item.split_once(':')
        .is_some_and(|(partition, broker)| digits(partition) && digits(broker))
}

/// `Double.toString`: scientific below 10⁻³ and from 10⁷ on, always with a fraction.
fn java_double(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}
