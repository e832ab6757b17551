import { render } from "preact";
import "@xterm/xterm/css/xterm.css";
import "./tokens.css";
import "./base.css";
import "./components/components.css";
import "./console.css";
import "./jobs/jobs.css";
import "./processes/process.css";
import "./processes/processes.css";
import "./server/server.css";
import "./devices/devices.css";
import "./questions/questions.css";
import { Console } from "./app/console-frame.tsx";

const root = document.getElementById("console");
if (root) render(<Console />, root);
