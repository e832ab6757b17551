/** Decisions of rules about commands and hosts. */
type Decision = "allow" | "ask" | "deny" | "refuse";

const STRICTNESS: Record<Decision, number> = { allow: 0, ask: 1, deny: 2, refuse: 2 };

/** Returns the stricter of two decisions. */
export function strictest<D extends Decision>(a: D, b: D): D {
  return STRICTNESS[a] >= STRICTNESS[b] ? a : b;
}
