import { sleep, systemClock } from "../../async/clock.ts";
import { parseObject } from "../../base/json-fields.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import type { Principal } from "../auth/principal.ts";
import { INVALID_TOKEN_DELAY_MS } from "../auth/websocket-auth.ts";
import { type ConsoleAuth, consoleSecretIn, LOGIN_TOKEN_VALID_MS } from "./console-auth.ts";

/** A request below `/api` with the headers that sign-in uses. */
export interface SignInRequest {
  method: string;
  /** Path without the query string. */
  path: string;
  authorization: string | undefined;
  userAgent: string | undefined;
  body(): Promise<string | null>;
}

export interface ApiResponse {
  status: number;
  body: string;
  isJson: boolean;
}

interface Call {
  access: ConsoleAuth;
  auth: Authenticator;
  request: SignInRequest;
}

/** A call of a signed-in user. */
interface SignedInCall extends Call {
  principal: Principal;
  secret: string;
}

/** Handles sign-in, sign-out and the list of signed-in devices. Resolves to null if the path is none of these. */
export async function handleSignInRequest(
  access: ConsoleAuth,
  auth: Authenticator,
  request: SignInRequest,
): Promise<ApiResponse | null> {
  const call: Call = { access, auth, request };
  switch (request.path) {
    case "/api/sign-in":
      return requireMethod("POST", request, () => signIn(call));
    case "/api/me":
      return requireMethod("GET", request, () => asUser(call, ({ principal: { id, role } }) => json({ id, role })));
    case "/api/sign-out":
      return requireMethod("POST", request, () => signOut(call));
    case "/api/sign-out-everywhere":
      return requireMethod("POST", request, () => asUser(call, signOutEverywhere));
    case "/api/devices":
      return requireMethod("GET", request, () => asUser(call, listDevices));
    case "/api/devices/sign-out":
      return requireMethod("POST", request, () => asUser(call, signOutDevice));
    case "/api/devices/link":
      return requireMethod("POST", request, () => asUser(call, newDeviceLink));
    default:
      return null;
  }
}

async function requireMethod(
  method: "GET" | "POST",
  request: SignInRequest,
  act: () => Promise<ApiResponse>,
): Promise<ApiResponse> {
  return request.method === method ? act() : textResponse(405, `method not allowed; use ${method}`);
}

async function asUser(
  call: Call,
  act: (call: SignedInCall) => ApiResponse | Promise<ApiResponse>,
): Promise<ApiResponse> {
  const secret = consoleSecretIn(call.request.authorization);
  const principal = call.access.principalOf(secret);
  if (!principal || secret === undefined)
    return textResponse(401, "sign in first; `procwire console` prints a login URL");
  return act({ ...call, principal, secret });
}

async function signIn({ access, auth, request }: Call): Promise<ApiResponse> {
  const token = parseObject((await request.body()) ?? "")?.token;
  if (typeof token !== "string" || token === "") return textResponse(400, 'the body must be {"token": "…"}');
  const secret = await access.signIn(token, auth, request.userAgent);
  if (secret !== null) return json({ secret });
  await sleep(systemClock, INVALID_TOKEN_DELAY_MS);
  return textResponse(401, "the token is invalid, already used or expired; run `procwire console` for a new login URL");
}

async function signOut({ access, request }: Call): Promise<ApiResponse> {
  const secret = consoleSecretIn(request.authorization);
  if (secret !== undefined) access.signOut(secret);
  return EMPTY;
}

function signOutEverywhere({ access, principal }: SignedInCall): ApiResponse {
  access.signOutEverywhere(principal);
  return EMPTY;
}

function listDevices({ access, principal, secret }: SignedInCall): ApiResponse {
  return json({ devices: access.devices(principal, secret) });
}

async function signOutDevice({ access, principal, request }: SignedInCall): Promise<ApiResponse> {
  const id = parseObject((await request.body()) ?? "")?.id;
  if (typeof id !== "number") return textResponse(400, 'the body must be {"id": NUMBER}');
  return access.signOutDevice(principal, id) ? EMPTY : textResponse(404, `no signed-in device has the number ${id}`);
}

function newDeviceLink({ access, principal }: SignedInCall): ApiResponse {
  return json({ token: access.newLoginToken(principal), validMs: LOGIN_TOKEN_VALID_MS });
}

const EMPTY: ApiResponse = { status: 204, body: "", isJson: false };

function json(value: unknown): ApiResponse {
  return { status: 200, body: JSON.stringify(value), isJson: true };
}

/** Returns a response with a line of text. */
export function textResponse(status: number, reason: string): ApiResponse {
  return { status, body: `${reason}\n`, isJson: false };
}
