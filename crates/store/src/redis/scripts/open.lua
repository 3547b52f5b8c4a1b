-- Opens a store, and begins a new incarnation of it where the server may have forgotten something.
--
-- ARGV: 1 the version of the format, 2 how long holders of before may go on (microseconds), 3 the incarnation that the client
-- knew, or nothing. Returns the incarnation and the moment.
local time = redis.call('TIME')
local wall = time[1] * 1000000 + time[2]
local server = redis.call('INFO', 'server')
local run = string.match(server, 'run_id:(%x+)')
local about = redis.call('HMGET', KEYS[1], 'run', 'incarnation', 'format', 'wall', 'ahead', 'number', 'version')
if about[3] and tonumber(about[3]) > tonumber(ARGV[1]) then
    return redis.error_reply('TOONEW ' .. about[3])
end
local last_wall = tonumber(about[4] or wall)
local ahead = tonumber(about[5] or 0)
local moment = math.max(wall, last_wall) + ahead
if about[1] == run then
    return { about[2], moment }
end

-- A restarted server may have forgotten leases that were held when it ended. A promoted replica may have forgotten some that were
-- held until now; so may a server that was emptied, which only a client that knew the store notices.
local uptime = tonumber(string.match(server, 'uptime_in_seconds:(%d+)')) * 1000000
local was_replica = not string.find(redis.call('INFO', 'replication'), 'second_repl_offset:-1', 1, true)
local from = moment
if not was_replica and (about[1] or ARGV[3] == '') then
    from = moment - uptime
end
local function text(whole)
    return string.format('%.0f', whole)
end
local incarnation = run .. ':' .. text(moment)
redis.call('HSET', KEYS[1], 'run', run, 'incarnation', incarnation, 'format', ARGV[1],
    'silent_until', text(from + tonumber(ARGV[2])), 'wall', text(wall), 'ahead', text(moment - wall),
    'number', about[6] or '0', 'version', about[7] or '0')
return { incarnation, moment }
