/** Verdicts of rules about commands and hosts. */
type Verdict = "allow" | "ask" | "deny" | "refuse";

const STRICTNESS: Record<Verdict, number> = { allow: 0, ask: 1, deny: 2, refuse: 2 };

/** Returns the stricter of two decisions. */
export function strictest<V extends Verdict>(a: V, b: V): V {
  return STRICTNESS[a] >= STRICTNESS[b] ? a : b;
}
