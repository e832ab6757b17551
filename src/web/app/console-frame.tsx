import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ExecServerClient } from "../../client/browser.ts";
import { AccessPage } from "../access/access-page.tsx";
import { Alert } from "../components/alert.tsx";
import { Menu } from "../components/menu.tsx";
import { TextField } from "../components/text-field.tsx";
import { DevicesPage } from "../devices/devices-page.tsx";
import { JobPage } from "../jobs/job-page.tsx";
import { JobsPage } from "../jobs/jobs-page.tsx";
import { ProcessPage } from "../processes/lazy-process-page.ts";
import { ProcessesPage } from "../processes/processes-page.tsx";
import { type ShareLink, takeShareLink, tokenProtocols } from "../processes/share-link.ts";
import { QuestionLink } from "../questions/question-link.tsx";
import { type Questions, useQuestions } from "../questions/use-questions.ts";
import { ServerPage } from "../server/server-page.tsx";
import { type MetricsState, useMetrics } from "../server/use-metrics.ts";
import { handleSubmit } from "./handle-submit.ts";
import { type Route, type Section, sectionOf, toHref, useRoute } from "./route.ts";
import {
  fetchIdentity,
  type Identity,
  type IdentityResult,
  sessionSecret,
  signIn,
  signOut,
  takeToken,
} from "./sign-in.ts";
import { useClient } from "./use-client.ts";
import { usePageTitle } from "./use-page-title.ts";

/** Shows the one process of a share link, or signs in. */
export function Console() {
  const [share] = useState(takeShareLink);
  return share ? <Guest share={share} /> : <SignedIn />;
}

/** View of a guest: one process, without navigation. */
function Guest({ share }: { share: ShareLink }) {
  const [protocols] = useState(() => tokenProtocols(share.token));
  const connection = useClient(protocols);
  if (connection.type === "connecting") return <CenteredMessage>Connecting…</CenteredMessage>;
  if (connection.type === "failed") {
    return (
      <CenteredMessage isAlert>This link does not work. It may have expired, or the process has ended.</CenteredMessage>
    );
  }
  return (
    <>
      <header class="app-header">
        <span class="brand">
          <Logo />
          <span>procwire</span>
        </span>
        <span class="muted">shared process</span>
        <span class="spacer" />
        <output aria-live="polite" class="connection-state">
          {connection.type === "reconnecting" ? "connection lost, reconnecting…" : ""}
        </output>
      </header>
      <main class="page-process">
        <ProcessPage
          client={connection.client}
          handle={share.handle}
          guest={share.role}
          isReconnecting={connection.type === "reconnecting"}
        />
      </main>
    </>
  );
}

/** Signs in with the token in the URL, or asks the user for a token, then shows the console. */
function SignedIn() {
  const [identity, setIdentity] = useState<IdentityResult | { type: "loading" }>({ type: "loading" });
  const [problem, setProblem] = useState<string | null>(null);
  const authenticate = async (token: string | null) => {
    const failure = token === null ? null : await signIn(token);
    const fetched = await fetchIdentity();
    setIdentity(fetched);
    setProblem(fetched.type === "signedIn" ? null : failure);
  };
  useEffect(() => {
    // A failure is stored in the state.
    void authenticate(takeToken());
  }, []);
  switch (identity.type) {
    case "loading":
      return <CenteredMessage>Connecting…</CenteredMessage>;
    case "unreachable":
      return <CenteredMessage>The server cannot be reached. Reload the page when it runs again.</CenteredMessage>;
    case "signedOut":
      return <SignIn problem={problem} onToken={(token) => void authenticate(token)} />;
    case "signedIn":
      return <Frame me={identity.me} onSignedOut={() => setIdentity({ type: "signedOut" })} />;
  }
}

/** Page with only a message. */
function CenteredMessage({ isAlert = false, children }: { isAlert?: boolean; children: ComponentChildren }) {
  return (
    <main class="sign-in">
      <h1>procwire</h1>
      <p role={isAlert ? "alert" : undefined}>{children}</p>
    </main>
  );
}

function SignIn({ problem, onToken }: { problem: string | null; onToken: (token: string) => void }) {
  const [token, setToken] = useState("");
  return (
    <main class="sign-in">
      <h1>procwire</h1>
      <p>
        Run <code>procwire console</code> on the server's host and open the URL that it prints, or paste a token. A URL
        works once, within 15 minutes.
      </p>
      <form onSubmit={handleSubmit(() => token.trim() !== "" && onToken(token.trim()))}>
        <TextField type="password" autocomplete="off" value={token} onValue={setToken}>
          Token
        </TextField>
        <button type="submit" class="primary">
          Sign in
        </button>
      </form>
      <Alert message={problem} />
    </main>
  );
}

function Frame({ me, onSignedOut }: { me: Identity; onSignedOut: () => void }) {
  const route = useRoute();
  const [protocols] = useState(() => tokenProtocols(sessionSecret() ?? ""));
  const connection = useClient(protocols);
  const metrics = useMetrics();
  const questions = useQuestions("client" in connection ? connection.client : null);
  const isConnected = connection.type === "connected" || connection.type === "connecting";
  useEffect(() => {
    if (isConnected) return;
    // A browser does not report why it lost a WebSocket. The console session may have ended.
    void fetchIdentity().then(({ type }) => type === "signedOut" && onSignedOut());
  }, [isConnected]);
  if (connection.type === "connecting") return <CenteredMessage>Connecting…</CenteredMessage>;
  if (connection.type === "failed") return <CenteredMessage isAlert>{connection.reason}</CenteredMessage>;
  const { client } = connection;
  return (
    <>
      <header class="app-header">
        <a class="brand" href={toHref({ page: "processes" })} aria-label="procwire">
          <Logo />
          <span>procwire</span>
        </a>
        <nav aria-label="Sections">
          {SECTIONS.map(([section, label]) => (
            <a
              key={section}
              href={toHref({ page: section })}
              aria-current={sectionOf(route) === section ? (route.page === section ? "page" : "true") : undefined}
            >
              {label}
            </a>
          ))}
        </nav>
        <span class="spacer" />
        <output aria-live="polite" class="connection-state">
          {connection.type === "reconnecting" ? "connection lost, reconnecting…" : ""}
        </output>
        <QuestionLink questions={questions.open} />
        <AccountMenu me={me} />
      </header>
      <main class={`page-${route.page}`}>
        <CurrentPage
          route={route}
          client={client}
          me={me}
          metrics={metrics}
          questions={questions}
          isReconnecting={connection.type === "reconnecting"}
        />
      </main>
    </>
  );
}

const SECTIONS: readonly [Section, string][] = [
  ["processes", "Processes"],
  ["jobs", "Jobs"],
  ["server", "Server"],
];

function CurrentPage({
  route,
  client,
  me,
  isReconnecting,
  metrics,
  questions,
}: {
  route: Route;
  client: ExecServerClient;
  me: Identity;
  isReconnecting: boolean;
  metrics: MetricsState;
  questions: Questions;
}) {
  switch (route.page) {
    case "processes":
      return <ProcessesPage client={client} me={me} />;
    case "process":
      return (
        <ProcessPage
          key={route.handle}
          client={client}
          handle={route.handle}
          isReconnecting={isReconnecting}
          questions={questions}
        />
      );
    case "jobs":
      return <JobsPage />;
    case "job":
    case "row":
      return (
        <JobPage
          key={route.jobId}
          client={client}
          jobId={route.jobId}
          itemId={route.page === "row" ? route.itemId : null}
        />
      );
    case "server":
      return <ServerPage client={client} metrics={metrics} />;
    case "devices":
      return <DevicesPage />;
    case "access":
      return <AccessPage client={client} />;
    case "unknown":
      return <UnknownPage path={route.path} />;
  }
}

function UnknownPage({ path }: { path: string }) {
  usePageTitle("Page not found");
  return (
    <div class="notice">
      <h1>Page not found</h1>
      <p>
        The console has no page <code>{path}</code>.
      </p>
      <p>
        <a href={toHref({ page: "processes" })}>Show all processes</a>
      </p>
    </div>
  );
}

/** The icon of the console, in the colors of the theme. */
function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect width="32" height="32" rx="6" />
      <path d="M8 10l6 6-6 6M16 22h8" />
    </svg>
  );
}

/** Actions on the console session of the user. */
function AccountMenu({ me }: { me: Identity }) {
  const name = `${me.id}${me.role === "operator" ? " (operator)" : ""}`;
  return (
    <Menu
      label={`Account ${name}`}
      title={
        <>
          Signed in as <strong>{name}</strong>
        </>
      }
      items={[
        { label: "Devices", onSelect: () => location.assign(toHref({ page: "devices" })) },
        { label: "Access", onSelect: () => location.assign(toHref({ page: "access" })) },
        { label: "Sign out", onSelect: () => void signOut() },
      ]}
    >
      <svg class="avatar" viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">
        <circle cx="12" cy="12" r="12" />
        <path d="M12 12a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7Zm-6.5 7a6.5 5.5 0 0 1 13 0Z" />
      </svg>
      <span class="account-name">{me.id}</span>
    </Menu>
  );
}
