//! What is said of expressions that are wrong, as users see it.

use expect_test::{Expect, expect};
use namewall_expression::Expression;

fn check(texts: &[&str], expected: Expect) {
    let told = texts.iter().map(|text| match Expression::parse(text) {
        Ok(_) => panic!("{text} is read"),
        Err(error) => format!("{error}\n"),
    });
    expected.assert_eq(&told.collect::<String>());
}

#[test]
fn networks_and_addresses() {
    check(
        &[
            "in-cidr(client_ip, 10.0.0.0/33)",
            "in-cidr(client_ip, '10.0.0.0/x')",
            "in-cidr(client_ip, 2001:db8::/129)",
            "in-cidr(client_ip, ::ffff:10.0.0.0/104)",
            "in-cidr(client_ip, 300.0.0.1)",
            "in-cidr(client_ip, 1:::2)",
            "in-cidr(10.0.0.0/8, client_ip)",
            "in-cidr(client_ip)",
            "in-cidr(name, 10.0.0.0/8)",
            "in-cidr(client_ip, type)",
            "in-cidr('host', 10.0.0.0/8)",
            "in-cidr(response/ips, 10.0.0.0/8)",
            "client_ip == 10.0.0.0/8",
            "client_ip == 'foo'",
            "client_ip == '10.0.0.0/8'",
            "client_ip in ('10.0.0.1', 'foo')",
            "client_ip in '10.0.0.0/40'",
            "client_ip < 'foo'",
        ],
        expect![[r#"
            in-cidr(client_ip, 10.0.0.0/33)
                               ^^^^^^^^^^^ `10.0.0.0/33` has a prefix longer than its address (32 bits)
            in-cidr(client_ip, '10.0.0.0/x')
                               ^^^^^^^^^^^^ `10.0.0.0/x` is not a CIDR block; write an address, a slash and a prefix length, like 10.0.0.0/8 or 2001:db8::/32
            in-cidr(client_ip, 2001:db8::/129)
                               ^^^^^^^^^^^^^^ `2001:db8::/129` has a prefix longer than its address (128 bits)
            in-cidr(client_ip, ::ffff:10.0.0.0/104)
                               ^^^^^^^^^^^^^^^^^^^ `::ffff:10.0.0.0/104` is an IPv4-mapped IPv6 block; no packet carries such an address: write the IPv4 block
            in-cidr(client_ip, 300.0.0.1)
                               ^^^^^^^^^ `300.0.0.1` is not an address
            in-cidr(client_ip, 1:::2)
                               ^^^^^ `1:::2` is not an address
            in-cidr(10.0.0.0/8, client_ip)
                    ^^^^^^^^^^ `10.0.0.0/8` is a network, and the address comes first; write in-cidr(address, network)
            in-cidr(client_ip)
            ^^^^^^^^^^^^^^^^^^ `in-cidr` has too few arguments; write in-cidr(address, network, …)
            in-cidr(name, 10.0.0.0/8)
                    ^^^^ `name` is a name, which `in-cidr` does not take here; write in-cidr(address, network, …)
            in-cidr(client_ip, type)
                               ^^^^ `type` is text, which `in-cidr` does not take here; write in-cidr(address, network, …)
            in-cidr('host', 10.0.0.0/8)
                    ^^^^^^ `host` is not an address
            in-cidr(response/ips, 10.0.0.0/8)
                    ^^^^^^^^^^^^ `response/ips` is a list, which `in-cidr` does not take here; write in-cidr(address, network, …)
            client_ip == 10.0.0.0/8
            ^^^^^^^^^^^^^^^^^^^^^^^ an address is not equal to a network; write `in`
            client_ip == 'foo'
                         ^^^^^ `foo` is not an address: it can never match `client_ip`
            client_ip == '10.0.0.0/8'
            ^^^^^^^^^^^^^^^^^^^^^^^^^ an address is not equal to a network; write `in`
            client_ip in ('10.0.0.1', 'foo')
                                      ^^^^^ `foo` is not an address: it can never match `client_ip`
            client_ip in '10.0.0.0/40'
                         ^^^^^^^^^^^^^ `10.0.0.0/40` has a prefix longer than its address (32 bits)
            client_ip < 'foo'
                        ^^^^^ `foo` is not an address: it can never match `client_ip`
        "#]],
    );
}

#[test]
fn kinds() {
    check(
        &[
            "port == 'http'",
            "port > ''",
            "port == client_ip",
            "port == true",
            "type == 1",
            "name > 5",
            ">do == 'yes'",
            ">do > 1",
            "1 + true",
            "client_ip + 1",
            "response/ips + 'x'",
            "client_ip * 2",
            "5 - 'x'",
            "-name",
            "~true",
            "response/ips == '10.0.0.1'",
            "response/ips in (10.0.0.1)",
            "type in 'A'",
            "type in label",
            "'x' in response/ips",
            "10.0.0.0/8 =~ '10'",
        ],
        expect![[r#"
            port == 'http'
                    ^^^^^^ `http` is not a number: it can never match `port`
            port > ''
                   ^^ a number is neither less nor more than the empty text
            port == client_ip
            ^^^^^^^^^^^^^^^^^ `port` is a number and `client_ip` is an address: they cannot be compared
            port == true
            ^^^^^^^^^^^^ `port` is a number and `true` is true or false: they cannot be compared
            type == 1
            ^^^^^^^^^ `type` is text and `1` is a number: they cannot be compared
            name > 5
            ^^^^^^^^ `name` is a name and `5` is a number: they cannot be compared
            >do == 'yes'
                   ^^^^^ `yes` is not true or false: it can never match `>do`
            >do > 1
            ^^^^^^^ `>do` is true or false and `1` is a number: they cannot be compared
            1 + true
            ^^^^^^^^ `1` is a number and `true` is true or false: they have no sum
            client_ip + 1
            ^^^^^^^^^^^^^ `client_ip` is an address and `1` is a number: they have no sum
            response/ips + 'x'
            ^^^^^^^^^^^^ a list cannot be added
            client_ip * 2
            ^^^^^^^^^ `client_ip` is an address, and `*` is for numbers
            5 - 'x'
                ^^^ `x` is not a number, which `-` is for
            -name
             ^^^^ `name` is a name, and `-` is for numbers
            ~true
             ^^^^ `true` is true or false, and `~` is for numbers
            response/ips == '10.0.0.1'
            ^^^^^^^^^^^^^^^^^^^^^^^^^^ a list is not compared; write `in`, or count() for how many there are
            response/ips in (10.0.0.1)
            ^^^^^^^^^^^^ a list is in no list; `response_ip` is each address of an answer, one after the other
            type in 'A'
                    ^^^ `'A'` is no list, and no network; write a list in parentheses, like ('A', 'AAAA')
            type in label
                    ^^^^^ `label` is no list, and no network; write a list in parentheses, like ('A', 'AAAA')
            'x' in response/ips
            ^^^ `x` is not an address: it can never match `response/ips`
            10.0.0.0/8 =~ '10'
            ^^^^^^^^^^ `10.0.0.0/8` is a network, and patterns are for text
        "#]],
    );
}

#[test]
fn names() {
    check(
        &[
            "name == '*.example.com'",
            "name in ('a.example', 'b..example')",
            "under(name, '*.example.com')",
            "under(name, '.example.com')",
            "under(name, '')",
            "under(name, 'two words')",
            "under(name, 5)",
            "name == 'bü cher.example'",
            "label(name, 1.5)",
            "label(name, 'x')",
            "port-1024 > 0",
            "request/size/2 > 100",
        ],
        expect![[r#"
            name == '*.example.com'
                    ^^^^^^^^^^^^^^^ no `*` stands for labels in `*.example.com`; for all names below it write under(name, 'example.com')
            name in ('a.example', 'b..example')
                                  ^^^^^^^^^^^^ `b..example` has an empty label; labels are separated by single dots
            under(name, '*.example.com')
                        ^^^^^^^^^^^^^^^ no `*` stands for labels in `*.example.com`; for all names below it write under(name, 'example.com')
            under(name, '.example.com')
                        ^^^^^^^^^^^^^^ `.example.com` has an empty label; labels are separated by single dots
            under(name, '')
                        ^^ nothing is under the empty text; the root is '.'
            under(name, 'two words')
                        ^^^^^^^^^^^ `two words` has a space in it, which is written \032 in a name
            under(name, 5)
                        ^ `5` is a number, which `under` does not take here; write under(name, domain, …)
            name == 'bü cher.example'
                    ^^^^^^^^^^^^^^^^^ `xn--b cher-3ya.example` has ` ` in it; letters, digits, `-` and `_` are accepted
            label(name, 1.5)
                        ^^^ `1.5` is no whole number, and labels are counted
            label(name, 'x')
                        ^^^ `x` is no whole number, and labels are counted
            port-1024 > 0
            ^^^^^^^^^ `port-1024` is one name, that nobody sets; write spaces around `-` to calculate, or brackets if it is a name
            request/size/2 > 100
            ^^^^^^^^^^^^^^ `request/size/2` is one name, that nobody sets; write spaces around `/` to calculate, or brackets if it is a name
        "#]],
    );
}

#[test]
fn patterns() {
    check(
        &["name =~ '('", "name =~ label", "name =~ ('a', 'b{99999}{99999}')", "name =~ 'a{1000}{1000}'", "name !~ 5"],
        expect![[r#"
            name =~ '('
                    ^^^ the pattern cannot be read: unclosed group
            name =~ label
                    ^^^^^ a pattern is text in quotes, so that it can be checked now
            name =~ ('a', 'b{99999}{99999}')
                          ^^^^^^^^^^^^^^^^^ the pattern is too large
            name =~ 'a{1000}{1000}'
                    ^^^^^^^^^^^^^^^ the pattern is too large
            name !~ 5
                    ^ a pattern is text in quotes, so that it can be checked now
        "#]],
    );
}

#[test]
fn functions() {
    check(
        &[
            "incdr(client_ip, 10.0.0.0/8)",
            "contains(name, 'x')",
            "hasSuffix(name, 'x')",
            "atoi()",
            "atoi(1, 2)",
            "atoi(>do)",
            "random('a' == 'b')",
        ],
        expect![[r#"
            incdr(client_ip, 10.0.0.0/8)
            ^^^^^ there is no function `incdr`; did you mean `incidr`?
            contains(name, 'x')
            ^^^^^^^^ there is no function `contains`
            hasSuffix(name, 'x')
            ^^^^^^^^^ there is no function `hasSuffix`; did you mean `has_suffix`?
            atoi()
            ^^^^^^ `atoi` has too few arguments; write atoi(text)
            atoi(1, 2)
            ^^^^^^^^^^ `atoi` has too many arguments; write atoi(text)
            atoi(>do)
                 ^^^ `>do` is true or false, which `atoi` does not take here; write atoi(text)
            random('a' == 'b')
                   ^^^^^^^^^^ `'a' == 'b'` is true or false, which `random` does not take here; write random() or random(below)
        "#]],
    );
}

#[test]
fn words() {
    check(
        &[
            "type = 'A'",
            "type == 'A",
            "type == ‘A’",
            "type in ['A', 'B']",
            "type in {'A'}",
            "[request/client_ip == 1",
            "[] == 1",
            "type 'A'",
            "type ==",
            "and type",
            "(type == 'A'",
            "type == 'A')",
            "type == ()",
            "type in ('A',)",
            "type in ('A' 'B')",
            "a, b",
            "5x == 1",
            "1.2.3 == 1",
            "0x == 1",
            "0xfffffffffffffffff == 1",
            "1 == not true",
            "a ? b : ",
            "a : b",
            "a # b",
            "a \\",
            "grün == 'ü' ü",
            "type == 'A' and\n\ttype = 'B'\n",
        ],
        expect![[r#"
            type = 'A'
                 ^ `=` means nothing here; write `==` to compare
            type == 'A
                    ^^ the text has no ' at its end
            type == ‘A’
                    ^ `‘` means nothing here; write text in ' or "
            type in ['A', 'B']
                    ^^^^^^^^^^ brackets hold a name; a list is written in parentheses, like ('A', 'AAAA')
            type in {'A'}
                    ^ `{` means nothing here; lists are written in parentheses, like ('A', 'AAAA')
            [request/client_ip == 1
            ^^^^^^^^^^^^^^^^^^^^^^^ the name has no ] at its end
            [] == 1
            ^^ there is no name between the brackets
            type 'A'
                 ^^^ an operator is missing before this
            type ==
                   ^ a value is missing at the end
            and type
            ^^^ a value is missing before this
            (type == 'A'
                        ^ a parenthesis is not closed
            type == 'A')
                       ^ no parenthesis is open here
            type == ()
                    ^^ there is nothing between the parentheses
            type in ('A',)
                         ^ a value is missing before this
            type in ('A' 'B')
                         ^^^ an operator, a comma or a parenthesis is missing before this
            a, b
             ^ a comma stands only between parentheses
            5x == 1
            ^^ `5x` is not a number; a name that begins with a digit goes into brackets, and text into quotes
            1.2.3 == 1
            ^^^^^ `1.2.3` is not a number; a name that begins with a digit goes into brackets, and text into quotes
            0x == 1
            ^^ `0x` is not a number; a name that begins with a digit goes into brackets, and text into quotes
            0xfffffffffffffffff == 1
            ^^^^^^^^^^^^^^^^^^^ `0xfffffffffffffffff` is not a number; a name that begins with a digit goes into brackets, and text into quotes
            1 == not true
                 ^^^ `not` binds weaker than what stands before it; put it into parentheses: (not …)
            a ? b : 
                    ^ a value is missing at the end
            a : b
              ^ an operator is missing before this
            a # b
              ^ `#` means nothing here
            a \
              ^ there is nothing after the backslash
            grün == 'ü' ü
                        ^ an operator is missing before this
            	type = 'B'
            	     ^ `=` means nothing here; write `==` to compare
        "#]],
    );
}

#[test]
fn what_is_too_large_is_refused_and_what_is_empty() {
    let told = |text: &str| Expression::parse(text).map(|_| ()).map_err(|error| error.message().to_owned());
    assert_eq!(told(""), Err("the expression is empty".to_owned()));
    assert_eq!(told(" \n\t"), Err("the expression is empty".to_owned()));
    let too_deep = Err("more than 100 things are inside each other here".to_owned());
    assert_eq!(told(&"(".repeat(60_000)), too_deep);
    assert_eq!(told(&format!("{}1", "!".repeat(60_000))), too_deep);
    assert_eq!(told(&format!("{}1", "not ".repeat(10_000))), too_deep);
    assert_eq!(told(&"lower(".repeat(10_000)), too_deep);
    assert_eq!(told(&"a?".repeat(30_000)), too_deep);
    let too_high = Err("more than 250 operators are applied to each other here".to_owned());
    assert_eq!(told(&format!("1{}", "+1".repeat(30_000))), too_high);
    assert_eq!(told(&format!("1{}", "==1".repeat(20_000))), too_high);
    assert_eq!(told(&format!("a{}", " ?? a".repeat(10_000))), too_high);
    assert_eq!(told(&" ".repeat(100_000)), Err("the expression is 100000 bytes long; 65536 is the most".to_owned()));
    let patterns = |count: usize| format!("name =~ ({})", vec!["'a'"; count].join(","));
    assert_eq!(told(&patterns(101)), Err("this is one pattern more than 100, which is the most".to_owned()));
    assert_eq!(told(&patterns(100)), Ok(()));
    assert_eq!(told(&format!("1{}", " and 1".repeat(10_000))), Ok(()));
    assert_eq!(told(&format!("{}1{}", "(".repeat(90), ")".repeat(90))), Ok(()));
}

#[test]
fn of_a_long_line_the_place_is_shown() {
    let text =
        format!("{} and client_ip == 'foo' and {}", vec!["true"; 60].join(" and "), vec!["true"; 60].join(" and "));
    check(
        &[&text],
        expect![[r#"
            …true and true and true and client_ip == 'foo' and true and true and true and true and true and true and true and true and true and true and true and true and tr…
                                                     ^^^^^ `foo` is not an address: it can never match `client_ip`
        "#]],
    );
}

#[test]
fn patterns_that_no_word_of_a_message_matches() {
    check(
        &[
            "type =~ '^BOGUS$'",
            "type !~ 'axrf'",
            "type =~ ('^A$', '^TYPE10$')",
            "class =~ 'internet'",
            "rcode =~ 'NXDOMIAN'",
            "proto =~ 'tls'",
            "has_prefix(type, 'BOGUS')",
            "has_suffix(name, '*.example.com')",
        ],
        expect![[r#"
            type =~ '^BOGUS$'
                    ^^^^^^^^^ it matches no type of record that a message can have; compare it with the names: type in ('…', '…')
            type !~ 'axrf'
                    ^^^^^^ it matches no type of record that a message can have; compare it with the names: type in ('…', '…')
            type =~ ('^A$', '^TYPE10$')
                            ^^^^^^^^^^ it matches no type of record that a message can have; compare it with the names: type in ('…', '…')
            class =~ 'internet'
                     ^^^^^^^^^^ it matches no class that a message can have; compare it with the names: class in ('…', '…')
            rcode =~ 'NXDOMIAN'
                     ^^^^^^^^^^ it matches no response code that a message can have; compare it with the names: rcode in ('…', '…')
            proto =~ 'tls'
                     ^^^^^ it matches no protocol that a message can have; compare it with the names: proto in ('…', '…')
            has_prefix(type, 'BOGUS')
                             ^^^^^^^ it matches no type of record that a message can have; compare it with the names: type in ('…', '…')
            has_suffix(name, '*.example.com')
                             ^^^^^^^^^^^^^^^ no `*` stands for labels in `*.example.com`; for all names below it write under(name, 'example.com')
        "#]],
    );
    for text in
        ["type =~ '^TYPE65'", "type =~ 'null'", "rcode =~ '^RCODE24'", "proto =~ 'UDP'", "has_prefix(type, 'type6')"]
    {
        Expression::parse(text).unwrap_or_else(|error| panic!("{error}"));
    }
}
