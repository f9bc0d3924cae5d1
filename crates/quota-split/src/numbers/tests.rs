use proptest::prelude::*;

use super::*;

#[test]
fn a_number_a_range_and_a_start_name_what_they_say() {
    let owners = owners(&["300", "500-520", "45*", "+4420*", "support"]);

    let named = [
        ("300", Some(0)),
        ("3000", None),
        ("499", None),
        ("500", Some(1)),
        ("520", Some(1)),
        ("521", None),
        ("0510", None),
        ("45", Some(2)),
        ("4599", Some(2)),
        ("+442071", Some(3)),
        ("442071", None),
        ("support", Some(4)),
        ("5a0", None),
    ];
    for (number, owner) in named {
        assert_eq!(owners.of(number).map(NodeId::index), owner, "{number}");
    }
}

#[test]
fn a_range_over_two_lengths_counts_as_people_do() {
    let owners = owners(&["99-101"]);

    for (number, is_in) in [("98", false), ("99", true), ("100", true), ("101", true)] {
        assert_eq!(owners.of(number).is_some(), is_in, "{number}");
    }
    for number in ["102", "099", "000", "9", "+99", "999"] {
        assert_eq!(owners.of(number), None, "{number}");
    }
}

#[test]
fn numbers_that_share_one_have_one_owner_only() {
    let meeting = [
        ("300", "300"),
        ("300-400", "400"),
        ("300-400", "350-360"),
        ("300-400", "400-500"),
        ("300-400", "3*"),
        ("300-400", "4*"),
        ("300-400", "35*"),
        ("300-400", "399*"),
        ("99-101", "10*"),
        ("45*", "4*"),
        ("45*", "4567"),
        ("45*", "44-46"),
        ("4a*", "4ab"),
        ("+10-+20", "+*"),
        ("+10-+20", "+1*"),
    ];
    for (one, other) in meeting {
        for (first, second) in [(one, other), (other, one)] {
            let mut owners = owners(&[first]);
            assert_eq!(
                owners.give(&numbers(second), NodeId(9)),
                Err(NodeId(0)),
                "{first} {second}"
            );
            assert_eq!(owners, self::owners(&[first]), "nothing was given");
        }
    }
    for (one, other) in [("300", "3000"), ("300-400", "401"), ("300-400", "30*0")] {
        if let Ok(other) = other.parse() {
            assert_eq!(owners(&[one]).give(&other, NodeId(9)), Ok(()), "{one} {other}");
        }
    }
    for (one, other) in [("300-400", "5*"), ("300-400", "3a*"), ("10-20", "+1*"), ("45*", "46*")] {
        assert_eq!(owners(&[one]).give(&numbers(other), NodeId(9)), Ok(()), "{one} {other}");
        assert_eq!(owners(&[other]).give(&numbers(one), NodeId(9)), Ok(()), "{other} {one}");
    }
}

#[test]
fn what_names_no_numbers_is_refused() {
    let long = "1".repeat(NUMBER_LEN_MAX + 1);
    let cases = [
        ("", NumbersError::Malformed),
        ("*", NumbersError::Malformed),
        ("4*5", NumbersError::Malformed),
        ("4**", NumbersError::Malformed),
        ("3 0", NumbersError::Malformed),
        ("30-", NumbersError::Malformed),
        ("a-b", NumbersError::Malformed),
        ("+30-40", NumbersError::Malformed),
        ("30-40-50", NumbersError::Malformed),
        ("400-300", NumbersError::Reversed),
        ("100-99", NumbersError::Reversed),
        (&long, NumbersError::TooLong),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<Numbers>(), Err(error), "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn two_meet_exactly_when_they_share_a_number(one in specifier(), other in specifier()) {
        let (first, second) = (numbers(&one), numbers(&other));
        let shared = universe().any(|number| first.has(&number) && second.has(&number));
        let met = owners(&[&one]).give(&second, NodeId(9)).is_err();
        prop_assert_eq!(met, shared, "{} {}", one, other);
    }

    #[test]
    fn a_number_is_found_exactly_where_it_was_given(one in specifier(), number in 0_u32..2000) {
        let number = number.to_string();
        let found = owners(&[&one]).of(&number).is_some();
        prop_assert_eq!(found, numbers(&one).has(&number));
        prop_assert_eq!(numbers(&one).to_string(), one);
    }
}

/// Short enough that [`universe`] has every number that two of them can share.
fn specifier() -> impl Strategy<Value = String> {
    let number = || 0_u32..1000;
    prop_oneof![
        number().prop_map(|number| number.to_string()),
        (number(), number()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        (0_u32..300).prop_map(|number| format!("{number}*")),
    ]
}

fn universe() -> impl Iterator<Item = String> {
    (1..=3)
        .flat_map(|len| (0..10_u32.pow(len)).map(move |n| format!("{n:0len$}", len = len as usize)))
}

fn owners(all: &[&str]) -> Owners {
    let mut owners = Owners::default();
    for (id, text) in (0..).map(NodeId).zip(all) {
        owners.give(&numbers(text), id).unwrap();
    }
    owners
}

fn numbers(text: &str) -> Numbers {
    text.parse().unwrap()
}
