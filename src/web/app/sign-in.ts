import { deviceList, type SignedInDevice } from "../../protocol/console/console-device-schemas.ts";

/** The principal of the signed-in user. */
export interface Identity {
  id: string;
  role: "user" | "operator";
}

/** Key of the console session's secret. The storage belongs to this origin, port included, unlike a cookie. */
const STORAGE_KEY = "procwire.session";

/** Copy of the secret for a browser that denies the page its storage. */
let secretInMemory: string | null = null;

/** Returns the secret of the console session, or null before the sign-in. */
export function sessionSecret(): string | null {
  try {
    return localStorage.getItem(STORAGE_KEY) ?? secretInMemory;
  } catch {
    return secretInMemory;
  }
}

function storeSecret(secret: string | null): void {
  secretInMemory = secret;
  try {
    if (secret === null) localStorage.removeItem(STORAGE_KEY);
    else localStorage.setItem(STORAGE_KEY, secret);
  } catch {
    // The session then lasts until the page is closed.
  }
}

/** Sends a request to this server with the console session. */
export function fetchSignedIn(path: string, request: RequestInit = {}): Promise<Response> {
  const headers = new Headers(request.headers);
  const secret = sessionSecret();
  if (secret !== null) headers.set("authorization", `Bearer ${secret}`);
  return fetch(path, { ...request, headers });
}

/** Returns the token of the URL, or null. Removes it from the URL, so that no history entry or screenshot contains it. */
export function takeToken(): string | null {
  const token = /^#token=([\w-]+)$/.exec(location.hash)?.[1] ?? null;
  if (token !== null) history.replaceState(null, "", location.pathname);
  return token;
}

/** Exchanges a token for a console session. Resolves to null, or to the reason of the failure. */
export async function signIn(token: string): Promise<string | null> {
  const response = await fetch("/api/sign-in", postJson({ token })).catch(() => null);
  if (!response) return "the server cannot be reached";
  if (!response.ok) return (await response.text()).trim();
  const { secret } = (await response.json()) as { secret: string };
  storeSecret(secret);
  return null;
}

export async function signOut(): Promise<void> {
  await fetchSignedIn("/api/sign-out", { method: "POST" }).catch(() => null);
  storeSecret(null);
  location.reload();
}

/** Signs out all browsers of this principal. Throws if the server did not. */
export async function signOutEverywhere(): Promise<void> {
  await requireOk(await fetchSignedIn("/api/sign-out-everywhere", { method: "POST" }));
  storeSecret(null);
  location.reload();
}

export async function listDevices(signal: AbortSignal): Promise<SignedInDevice[]> {
  const response = await requireOk(await fetchSignedIn("/api/devices", { signal }));
  return deviceList.decode(await response.json()).devices;
}

export async function signOutDevice(id: number): Promise<void> {
  await requireOk(await fetchSignedIn("/api/devices/sign-out", postJson({ id })));
}

/** Creates a login URL of this page that works once. */
export async function newDeviceLink(): Promise<{ url: string; validMs: number }> {
  const response = await requireOk(await fetchSignedIn("/api/devices/link", { method: "POST" }));
  const { token, validMs } = (await response.json()) as { token: string; validMs: number };
  return { url: `${location.origin}/#token=${token}`, validMs };
}

export type IdentityResult = { type: "signedIn"; me: Identity } | { type: "signedOut" } | { type: "unreachable" };

export async function fetchIdentity(): Promise<IdentityResult> {
  const response = await fetchSignedIn("/api/me").catch(() => null);
  if (!response) return { type: "unreachable" };
  if (!response.ok) return { type: "signedOut" };
  return { type: "signedIn", me: (await response.json()) as Identity };
}

function postJson(body: unknown): RequestInit {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

async function requireOk(response: Response): Promise<Response> {
  if (response.ok) return response;
  throw new Error((await response.text()).trim());
}
