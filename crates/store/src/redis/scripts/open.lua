-- Opens a store. Begins a new incarnation of it if the server may have lost something.
--
-- ARGV: 1 the version of the format, 2 the incarnation that the client knew, or nothing, 3 '1' if the client has seen a version
-- that the store does not have. Returns the incarnation and the moment.
local time = redis.call('TIME')
local wall = time[1] * 1000000 + time[2]
local server = redis.call('INFO', 'server')
local replication = redis.call('INFO', 'replication')
local was_replica = not string.find(replication, 'second_repl_offset:-1', 1, true)
-- A master that was a replica for some time keeps its run id.
local run = string.match(server, 'run_id:(%x+)')
if was_replica then
    run = run .. ':' .. string.match(replication, 'master_replid:(%x+)')
end
local about = redis.call('HMGET', KEYS[1], 'run', 'incarnation', 'format', 'wall', 'ahead', 'number', 'version')
if about[3] and tonumber(about[3]) > tonumber(ARGV[1]) then
    return redis.error_reply('TOONEW ' .. about[3])
end
local last_wall = tonumber(about[4] or wall)
local ahead = tonumber(about[5] or 0)
local moment = math.max(wall, last_wall) + ahead
if about[1] == run and ARGV[3] ~= '1' then
    return { about[2], moment }
end

-- Since when the store has lost nothing. After a plain restart: since the start, because the server answered no client before it.
-- A promoted replica, a store that was emptied while a client used it, and a server that was flushed may have lost leases until now.
local since = moment
if about[1] then
    if not was_replica and ARGV[3] ~= '1' then
        since = moment - tonumber(string.match(server, 'uptime_in_seconds:(%d+)')) * 1000000
    end
elseif ARGV[2] == '' then
    local commands = redis.call('INFO', 'commandstats')
    local was_emptied = string.find(commands, 'cmdstat_flush', 1, true) or string.find(commands, 'cmdstat_swapdb', 1, true)
        or not string.find(redis.call('INFO', 'stats'), 'evicted_keys:0', 1, true)
    if not was_replica and not was_emptied then
        since = moment - tonumber(string.match(server, 'uptime_in_seconds:(%d+)')) * 1000000
    end
end
local function text(whole)
    return string.format('%.0f', whole)
end
local incarnation = run .. ':' .. text(moment)
redis.call('HSET', KEYS[1], 'run', run, 'incarnation', incarnation, 'format', ARGV[1],
    'since', text(since), 'wall', text(wall), 'ahead', text(moment - wall),
    'number', about[6] or '0', 'version', about[7] or '0')
return { incarnation, moment }
