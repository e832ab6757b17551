/** The principal of the signed-in user. */
export interface Identity {
  id: string;
  role: "user" | "operator";
}

/** Returns the token of the URL, or null. Removes it from the URL, so that no history entry or screenshot contains it. */
export function takeToken(): string | null {
  const token = /^#token=([\w-]+)$/.exec(location.hash)?.[1] ?? null;
  if (token !== null) history.replaceState(null, "", location.pathname);
  return token;
}

/** Exchanges a token for the session cookie. Resolves to null, or to the reason of the failure. */
export async function signIn(token: string): Promise<string | null> {
  const response = await fetch("/api/sign-in", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  }).catch(() => null);
  if (!response) return "the server cannot be reached";
  return response.ok ? null : (await response.text()).trim();
}

export async function signOut(): Promise<void> {
  await fetch("/api/sign-out", { method: "POST" }).catch(() => null);
  location.reload();
}

export type IdentityResult = { type: "signedIn"; me: Identity } | { type: "signedOut" } | { type: "unreachable" };

export async function fetchIdentity(): Promise<IdentityResult> {
  const response = await fetch("/api/me").catch(() => null);
  if (!response) return { type: "unreachable" };
  if (!response.ok) return { type: "signedOut" };
  return { type: "signedIn", me: (await response.json()) as Identity };
}
