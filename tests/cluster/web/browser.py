"""Headless Chromium for tests, driven by chromedriver over plain HTTP (W3C WebDriver). Standard library only. The browser and its profile are
gone when the `with` block ends."""
import base64
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from stopwatch import Stopwatch, at_most, wait_until

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Tab": "\ue004", "Escape": "\ue00c", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "ArrowUp": "\ue013", "Home": "\ue011",
        "End": "\ue010", "ArrowDown": "\ue015", "Shift": "\ue008", "Space": " ", "Control": "\ue009", "Backspace": "\ue003"}


def find_browser():
    """(chromium, chromedriver), or what is missing."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class WebDriverError(Exception):
    pass


class Browser:
    """with Browser(width, height) as browser: browser.open(url)"""

    def __init__(self, width=1400, height=1000, flags=()):
        self.size, self.flags = (width, height), flags

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="coppice.browser.")
        try:
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def begin(self):
        browser, driver = find_browser()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        environment = dict(os.environ, HOME=self.folder, XDG_CONFIG_HOME=self.folder, XDG_CACHE_HOME=self.folder, TMPDIR=self.folder)
        # Its own session, so that every process of the browser ends with it.
        self.driver = subprocess.Popen([driver, f"--port={self.port}", "--log-level=WARNING"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env=environment, start_new_session=True)
        self.session = ""
        if not wait_until(self.answers, 30):
            raise WebDriverError("chromedriver does not answer")
        width, height = self.size
        arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                     "--disable-component-update", "--disable-sync", "--no-proxy-server", "--force-color-profile=srgb", f"--user-data-dir={self.folder}/profile",
                     f"--window-size={width},{height}", *self.flags]
        answer = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"binary": browser, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
        self.session = f"/session/{answer['sessionId']}"
        self.resize(width, height)

    def answers(self):
        try:
            return self.ask("GET", "/status")["ready"]
        except (OSError, WebDriverError):
            return False

    def end(self):
        if getattr(self, "session", ""):
            try:
                self.ask("DELETE", self.session)
            except (OSError, WebDriverError):
                pass
        if getattr(self, "driver", None):
            try:
                os.killpg(self.driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.driver.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=at_most(60)) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise WebDriverError(f"{method} {path}: {json.loads(error.read())['value']['message']}") from None

    def post(self, path, body=None):
        return self.ask("POST", self.session + path, body or {})

    # ---- pages ----

    def open(self, url):
        self.post("/url", {"url": url})

    def devtools(self, command, **parameters):
        return self.post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width, height):
        """The size of what a page sees. A window cannot be as narrow as a telephone, so this is set apart from it."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, **features):
        """Emulates media features: media(prefers_color_scheme="dark")."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def run(self, script, *arguments):
        """The value of the body of a function in the page."""
        return self.post("/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script, what="", seconds=30):
        """Waits until the expression is true in the page, and returns it."""
        watch = Stopwatch()
        while True:
            value = self.run(f"return {script}")
            if value:
                return value
            if watch.seconds() > seconds:
                raise AssertionError(f"never: {what or script}\n{self.text('body')[:3000]}")
            time.sleep(0.05)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map(node => node.textContent)", selector)

    # ---- real events ----

    def element(self, selector):
        return self.post("/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.post(f"/element/{self.element(selector)}/click")

    def choose(self, selector, value):
        """Chooses an option of a select, or sets a field, as a reader does: with the events of it."""
        self.run("const node = document.querySelector(arguments[0]); node.value = arguments[1];"
                 "for (const name of ['input', 'change']) node.dispatchEvent(new Event(name, {bubbles: true}))", selector, str(value))

    def type(self, text):
        """Types into what has the focus."""
        actions = [action for letter in text for action in ({"type": "keyDown", "value": letter}, {"type": "keyUp", "value": letter})]
        self.post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def press(self, *names):
        """Presses keys together: press("Shift", "Enter")."""
        keys = [KEYS.get(name, name) for name in names]
        actions = [{"type": "keyDown", "value": key} for key in keys] + [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self.post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    # ---- what happened ----

    def log(self, kind):
        return self.post("/se/log", {"type": kind})

    def console(self):
        """Messages of the console since the last call, but for plain information."""
        return [entry["message"] for entry in self.log("browser") if entry["level"] not in ("INFO", "DEBUG")]

    def requests(self):
        """The addresses that were asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]

    def screenshot(self, name, whole=True):
        """Writes NAME.png into the folder COPPICE_SCREENSHOTS, if that is set."""
        folder = os.environ.get("COPPICE_SCREENSHOTS")
        if not folder:
            return
        image = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{name}.png").write_bytes(base64.b64decode(image))
