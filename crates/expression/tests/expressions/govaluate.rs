//! Expressions that govaluate takes too, with the values it gives, and then those where it is not followed.

use super::support::{TestFacts, check};

#[test]
fn values_are_govaluates() {
    check(
        &TestFacts::default().text("greeting", "hello").text("empty", ""),
        &[
            // Numbers.
            ("7 + 8", "15"),
            ("7 - 8", "-1"),
            ("6 * 7", "42"),
            ("7 / 2", "3.5"),
            ("7 % 4", "3"),
            ("-7 % 4", "-3"),
            ("7.5 % 2", "1.5"),
            ("2 ** 10", "1024"),
            ("4 ** 0.5", "2"),
            ("0x1F", "31"),
            (".5 + 1.", "1.5"),
            ("12 & 10", "8"),
            ("12 | 3", "15"),
            ("12 ^ 10", "6"),
            ("1 << 4", "16"),
            ("256 >> 4", "16"),
            ("~0", "-1"),
            ("-0 * 1 + ''", "'0'"),
            ("~5 & 0xff", "250"),
            ("3.9 | 0", "3"),
            // What binds stronger, and from where.
            ("2 + 3 * 4", "14"),
            ("(2 + 3) * 4", "20"),
            ("10 - 4 - 3", "3"),
            ("100 / 10 / 5", "2"),
            ("2 ** 3 ** 2", "64"),
            ("2 * 3 ** 2", "18"),
            ("-2 ** 2", "4"),
            ("1 + 1 << 3", "16"),
            ("1 << 1 + 2", "8"),
            ("6 & 3 << 1", "6"),
            ("1 | 6 & 4", "4"),
            ("10 - -3", "13"),
            ("10--3", "13"),
            ("1 + 2 > 2", "true"),
            ("5 & 1 == 1", "true"),
            ("!true == false", "true"),
            ("!(1 > 2)", "true"),
            ("true || false && false", "true"),
            ("(true || false) && false", "false"),
            ("1 < 2 == true", "true"),
            // Text.
            ("'a' + 'b'", "'ab'"),
            ("'port ' + 53", "'port 53'"),
            ("53 + '/udp'", "'53/udp'"),
            ("'is ' + true", "'is true'"),
            ("1 + 2 + 'a'", "'3a'"),
            ("'a' + 1 + 2", "'a12'"),
            ("'ab' < 'abc'", "true"),
            ("'B' < 'a'", "true"),
            ("'10' < '9'", "true"),
            ("'abc' >= 'abc'", "true"),
            ("'x' == \"x\"", "true"),
            ("'x' != 'X'", "true"),
            (r"'it\'s'", "'it's'"),
            ("greeting == 'hello'", "true"),
            ("[greeting] == 'hello'", "true"),
            (r"gre\eting == 'hello'", "true"),
            // Patterns, unanchored.
            ("'foobar' =~ 'ob'", "true"),
            ("'foobar' =~ '^ob'", "false"),
            ("'foobar' !~ 'x+'", "true"),
            ("'v10' =~ '^v[0-9]+$'", "true"),
            // Lists.
            ("1 in (1, 2, 3)", "true"),
            ("4 IN (1, 2, 3)", "false"),
            ("'a' in ('b', 'a')", "true"),
            ("!('a' in ('b', 'a'))", "false"),
            ("greeting in ('hello', 'hi')", "true"),
            ("2 in (1, 1 + 1)", "true"),
            // Choices.
            ("true ? 1 : 2", "1"),
            ("false ? 1 : 2", "2"),
            ("1 > 2 ? 'a' : 'b'", "'b'"),
            ("true?1:2", "1"),
            ("(false ? 1 : 2) > 1", "true"),
            ("true ? 5 : 1 > 10", "5"),
            ("false ? 1 : (true ? 2 : 3)", "2"),
            ("true ? 10", "10"),
            ("false ? 10", "''"),
            ("1 ?? 2", "1"),
            ("0 ?? 2", "0"),
            ("empty ?? 2", "2"),
            ("nobody ?? nothing ?? 'x'", "'x'"),
            ("true ?? true ? 100 + 200 : 400", "300"),
        ],
    );
}

#[test]
fn where_govaluate_is_not_followed() {
    check(
        &TestFacts::default().text("edns-class", "5"),
        &[
            // Values count as true or false.
            ("1 && 'x'", "true"),
            ("'' || 0", "false"),
            ("!'x'", "false"),
            // What text spells is compared with numbers; govaluate has no order for these, and no equality.
            ("'5' == 5", "true"),
            ("'5' < 10", "true"),
            ("'true' == true", "true"),
            ("'5' * 2", "10"),
            // A choice in a choice needs no parentheses.
            ("true ? 1 : true ? 2 : 3", "1"),
            ("false ? 1 : false ? 2 : 3", "3"),
            // A list of one is a list, and words are operators.
            ("1 in (1)", "true"),
            ("1 not in (1)", "false"),
            ("not 1 == 2 and true", "true"),
            ("NOT false OR false", "true"),
            // A date is text.
            ("'2014-01-02' == '2014-01-02'", "true"),
            ("'2014-01-02' + ''", "'2014-01-02'"),
            // In text, a backslash is one, so that patterns need no second; in names it is not.
            (r"'a.b' =~ 'a\.b'", "true"),
            (r"'axb' =~ 'a\.b'", "false"),
            (r"'axb' =~ 'a\\.b'", "false"),
            (r"'\d'", r"'\d'"),
            // A minus without spaces is a letter of a name.
            ("edns-class == 5", "true"),
            // What is no number is said.
            ("1 / 0", "error: in `1 / 0`: it divides by zero"),
            ("1 % 0", "error: in `1 % 0`: it divides by zero"),
            ("10 ** 400", "error: in `10 ** 400`: the result is too large"),
            ("(0 - 8) ** 0.5", "error: in `(0 - 8) ** 0.5`: the result is no number"),
            ("1 << -1", "error: in `1 << -1`: `-1` is no number of bits to shift by"),
            ("1 << 64", "0"),
        ],
    );
}
