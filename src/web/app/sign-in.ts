/** The principal of the signed-in user. */
export interface Identity {
  id: string;
  role: "user" | "operator";
}

/** Takes the token out of the address, so that it is in no history entry and no screenshot. */
export function takeToken(): string | null {
  const token = /^#token=([\w-]+)$/.exec(location.hash)?.[1] ?? null;
  if (token !== null) history.replaceState(null, "", location.pathname);
  return token;
}

/** Exchanges a token for the cookie. Null: it worked; else the text to show. */
export async function signIn(token: string): Promise<string | null> {
  const answer = await fetch("/api/sign-in", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  }).catch(() => null);
  if (!answer) return "the server cannot be reached";
  return answer.ok ? null : (await answer.text()).trim();
}

export async function signOut(): Promise<void> {
  await fetch("/api/sign-out", { method: "POST" }).catch(() => null);
  location.reload();
}

export type IdentityResult = { type: "me"; me: Identity } | { type: "nobody" } | { type: "unreachable" };

export async function fetchIdentity(): Promise<IdentityResult> {
  const answer = await fetch("/api/me").catch(() => null);
  if (!answer) return { type: "unreachable" };
  if (!answer.ok) return { type: "nobody" };
  return { type: "me", me: (await answer.json()) as Identity };
}
