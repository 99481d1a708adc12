# A negation of what has an undefined part.
package dns

action := "allow" if not startswith(input.team, "x")
